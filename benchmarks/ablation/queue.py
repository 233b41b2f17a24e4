"""DVC's queue of experiments: put in what is missing, work it off, read what is finished.

Finished experiments are Git commits under `refs/exps/<baseline commit>/<name>`; reading those needs no DVC.
DVC says `Success` of one that saved nothing (in a shallow clone), so only a commit counts as finished.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ablation.plan import Planned
from x1_pretrain.errors import UserError

STATES = ("Success", "Failed", "Queued", "Running")  # the later says more about what is going to happen
WORKERS = Path(".dvc/tmp/exps/celery")  # where DVC writes their process ids
POLL_S = 2.0  # asking Git costs nothing
LOOK_S = 30.0  # asking DVC takes half a second of a core that is training


def environment() -> dict[str, str]:
    """For dvc and what it starts: this interpreter first, and the code of the experiment's own commit.

    A relative PYTHONPATH is resolved in the temporary copy of the project in which DVC runs a stage;
    without it a stage would import the code that is being edited in the workspace.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return os.environ | {"PATH": path, "PYTHONPATH": "src", "DVC_NO_ANALYTICS": "1"}


def command(*arguments: str, stdin: str = "") -> str:
    """stdout of a dvc or git command. Raises `UserError` with its last line if it fails."""
    done = subprocess.run(
        arguments, input=stdin, capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise UserError(f"`{' '.join(arguments[:3])}` failed with status {done.returncode}: {said}")
    return done.stdout


def commit_to_run_on() -> str:
    """HEAD. Raises `UserError` if tracked files differ from it: results must belong to a commit.

    Documents may differ, the report of these experiments being one.
    """
    status = ("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs")
    changed = command(*status).splitlines()
    if changed:
        raise UserError(
            f"{changed[0][3:]} and {len(changed) - 1} other tracked files differ from HEAD; commit first, "
            "so that the experiments belong to a commit"
        )
    return command("git", "rev-parse", "HEAD").strip()


def finished(commit: str) -> set[str]:
    """Names of the finished experiments on a commit."""
    prefix = f"refs/exps/{commit[:2]}/{commit[2:]}/"
    names = command("git", "for-each-ref", "--format=%(refname)", prefix).split()
    return {name.removeprefix(prefix) for name in names}


def tasks_of(status: str) -> list[tuple[str, str, str]]:
    """(task, name, state) of each experiment in what `dvc queue status` prints."""
    lines = [line.split() for line in status.splitlines()]  # task, name, time, AM or PM, state
    return [(words[0], words[1], words[-1]) for words in lines if len(words) >= 4 and words[-1] in STATES]


def states(commit: str) -> dict[str, str]:
    """The state of each experiment of a commit that DVC's queue knows.

    A task is a stash commit whose first parent is the commit it was queued on. A name that is there twice
    has failed and was queued again.
    """
    tasks = tasks_of(command("dvc", "queue", "status"))
    parents = command(
        "git", "cat-file", "--batch-check", stdin="".join(f"{task}^1\n" for task, _, _ in tasks)
    )
    found: dict[str, str] = {}
    for (_, name, state), parent in zip(tasks, parents.splitlines(), strict=True):
        if parent.startswith(commit):
            found[name] = max(found.get(name, state), state, key=STATES.index)
    return found


def worker_is_alive() -> bool:
    """Whether the process of one of DVC's workers is there.

    DVC itself asks a worker and waits a second for the answer, too short for a busy machine: the worker
    would be taken for dead, and another one would train beside it.
    """
    for file in WORKERS.glob("dvc-exp-worker-*.json"):
        pid = str(json.loads(file.read_text(encoding="utf-8"))["pid"])
        asked = ("ps", "-p", pid, "-o", "args=")
        if "queue-worker" in subprocess.run(asked, capture_output=True, text=True, check=False).stdout:
            return True
    return False


def put(experiments: Iterable[Planned], commit: str) -> None:
    """Queue what is neither finished nor in the queue. Failed ones stay failed, and are named by `drain`."""
    there = finished(commit) | set(states(commit))
    missing = [experiment for experiment in experiments if experiment.name not in there]
    for number, experiment in enumerate(missing, start=1):
        print(f"queueing {number}/{len(missing)} {experiment.name}", flush=True)
        settings = [word for override in experiment.overrides for word in ("-S", override)]
        command("dvc", "exp", "run", "--queue", "-n", experiment.name, *settings, "train")


def drain(names: Collection[str], commit: str, jobs: int = 1) -> dict[str, str]:
    """Work until every name is finished or failed; returns why each failed one did, by name.

    Raises `UserError` for an experiment that would never end, by two looks in succession: see `lost`.
    """
    wanted, failed, shown = set(names), set[str](), None
    suspects: dict[str, str] = {}
    began, looked, at_start = time.monotonic(), -math.inf, len(finished(commit) & wanted)
    while True:
        if time.monotonic() - looked >= LOOK_S:
            alive, state = worker_is_alive(), states(commit)
            looked, unfinished = time.monotonic(), wanted - finished(commit)
            failed = {name for name in unfinished if state.get(name) == "Failed"}
            waiting = {name: state.get(name) for name in unfinished - failed}
            # One look is not enough: DVC has an experiment in no list while it takes it out of the queue, and
            # may have saved it since it was asked.
            before, suspects = suspects, lost(waiting, alive)
            if sure := sorted(before.keys() & suspects.keys()):
                raise UserError(suspects[sure[0]])
            if waiting and not alive and not suspects:
                start_workers(jobs)
        done = len(finished(commit) & wanted)
        if (done, len(failed)) != shown:
            shown = done, len(failed)
            print(progress(*shown, len(wanted), done - at_start, time.monotonic() - began), flush=True)
        if done + len(failed) == len(wanted):
            return {name: why_failed(name) for name in sorted(failed)}
        time.sleep(POLL_S)


def start_workers(jobs: int) -> None:
    """So many workers in the background, one experiment each; they leave when nothing is queued."""
    arguments = ["dvc", "queue", "start", "-j", str(jobs)]
    # Not `command`: a worker keeps what it inherits, so a pipe would stay open until the queue is empty.
    quiet = subprocess.DEVNULL
    done = subprocess.run(arguments, stdout=quiet, stderr=quiet, check=False, env=environment())
    if done.returncode:
        raise UserError(f"`{' '.join(arguments)}` failed with status {done.returncode}; run it to see why")


def lost(waiting: Mapping[str, str | None], worker_alive: bool) -> dict[str, str]:
    """Which experiments (name: state) nothing will end, it seems, each with what clears it."""
    found = {}
    for name, state in waiting.items():
        if state not in ("Queued", "Running"):
            found[name] = (
                f"{name}: neither in DVC's queue nor finished; if this clone is shallow, run "
                "`git fetch --unshallow`, then start the ablations again"
            )
        elif state == "Running" and not worker_alive:
            found[name] = (
                f"{name}: said to be running, but no worker is alive; run `dvc queue kill {name}` and "
                "`dvc queue remove --failed`, then start the ablations again"
            )
    return found


def progress(found: int, failed: int, wanted: int, new: int, elapsed_s: float) -> str:
    """One line; the time left is reckoned from the experiments that finished since the start."""
    left = wanted - found - failed
    line = f"ablations: {found}/{wanted} finished" + (f", {failed} failed" if failed else "")
    return f"{line}, about {elapsed_s / new * left / 60:.0f} min left" if new and left else line


def why_failed(name: str) -> str:
    """The trainer's own sentence, or the last line of the log."""
    try:
        lines = [line for line in command("dvc", "queue", "logs", name).splitlines() if line.strip()]
    except UserError as error:
        return str(error)
    own = [line for line in lines if line.startswith("error:")]
    return (own or lines or ["no log"])[-1]
