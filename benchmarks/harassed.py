"""One run of the stage `train` by `dvc repro` in a copy of the project, killed at random moments."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol

from x1_pretrain.errors import UserError

TORN = "trainer KILL in a write"
KINDS = ("trainer KILL", "trainer TERM", "dvc KILL", "both KILL", TORN)
# Without the option DVC would fetch the finished stage from its run-cache, and prove nothing.
REPRO = ("dvc", "repro", "--no-run-cache", "train")

STATES_APART = 6  # at most so many checkpoints, and a part of the time between two, from kill to kill
STALL_S = 600.0


class Copy(Protocol):
    """The copy of the project: where it is, and the environment in which its code is the one that runs."""

    @property
    def root(self) -> Path: ...

    def environment(self) -> dict[str, str]: ...


class Harassed:
    """`with Harassed(project, rng) as run:` starts DVC, and again whenever it was killed.

    `hits` counts the kills that the run survived. Should an orphan end it before the next DVC's trainer is
    there to see it, that one makes the run anew: then the earlier kills prove nothing and do not count.
    Raises `UserError` if DVC fails without a kill, or if nothing happens for `STALL_S`.
    """

    def __init__(self, project: Copy, rng: random.Random) -> None:
        self.project, self.rng = project, rng
        self.log = project.root / ".cache/kills.log"  # what DVC and the trainers say
        self.log.parent.mkdir(exist_ok=True)
        self.log.write_bytes(b"")
        self.started: list[subprocess.Popen[bytes]] = []  # every DVC, the present one last
        self.hits: Counter[str] = Counter()

    def __enter__(self) -> "Harassed":
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for dvc in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(dvc.pid, signal.SIGKILL)
            dvc.wait()

    def training(self) -> bool:
        """Wait until DVC's trainer trains, or waits for an orphan that does; False once the run is made."""
        while True:
            wait_until(lambda: self._in_place() or self.dvc.poll() is not None)
            if self.dvc.poll() is None:
                self._look_whether_it_is_the_same_run()
                return True
            if self.dvc.returncode == 0:
                return False
            if not self.struck:
                said = self.log.read_text()[-4000:]
                raise UserError(f"`{' '.join(REPRO)}` failed though nothing was killed, it said:\n{said}")
            self._start()

    def kill(self, kind: str) -> None:
        """Kill at a random moment; a hit if that was before the end of the training."""
        trainer = self._trainer()
        if trainer is None or not self._train_on(trainer):
            return
        if kind == TORN and not self._stop_in_a_write(trainer):
            return
        self.struck = True
        if kind in ("dvc KILL", "both KILL"):
            os.killpg(self.dvc.pid, signal.SIGKILL) if kind == "both KILL" else self.dvc.kill()
            self.dvc.wait()
        if kind != "dvc KILL":  # else the trainer goes on
            with contextlib.suppress(ProcessLookupError):
                os.kill(trainer, signal.SIGTERM if kind == "trainer TERM" else signal.SIGKILL)
            wait_until(lambda: not alive(trainer))
        self.hits[kind] += not self._found("delivered")

    def finish(self) -> None:
        """Undisturbed to the end, of orphans too."""
        while self.training():
            wait_until(lambda: self.dvc.poll() is not None)
        wait_until(lambda: not any(group_alive(dvc.pid) for dvc in self.started))
        self._look_whether_it_is_the_same_run()

    def says(self, what: str) -> int:
        """How often DVC or a trainer said it."""
        return self.log.read_text().count(what)

    @property
    def dvc(self) -> subprocess.Popen[bytes]:
        return self.started[-1]

    def _start(self) -> None:
        self.struck = False  # as long as nothing is killed, DVC may not fail
        self.waits_before = self.says("waiting for it to end")
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                REPRO,
                cwd=self.project.root,
                env=self.project.environment()
                | {"PYTHONUNBUFFERED": "1"},  # what is said counts, killed or not
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group: to kill it, and to know an orphan by
            )
        self.started.append(process)

    def _look_whether_it_is_the_same_run(self) -> None:
        (lock,) = self._found("lock")
        mark = lock.with_name("harassed")  # a run made anew leaves nothing in its folder but the lock
        if not mark.exists():
            self.hits.clear()
            mark.touch()

    def _in_place(self) -> bool:
        trainer = self._trainer()
        if trainer is None:
            return False
        if self.says("waiting for it to end") > self.waits_before:
            return True
        with contextlib.suppress(ProcessLookupError):
            return os.getpgid(trainer) == self.dvc.pid
        return False

    def _train_on(self, trainer: int) -> bool:
        """Let it train for a random while; False if it is over by then."""
        newest, interval_s = self._newest(), 0.0
        wanted = newest + self.rng.randint(0, STATES_APART)
        while newest < wanted:
            before, began = newest, time.monotonic()
            wait_until(lambda known=newest: self._newest() > known or not alive(trainer))
            if not alive(trainer):
                return False
            newest = self._newest()
            interval_s = (time.monotonic() - began) / (newest - before)
        time.sleep(self.rng.uniform(0, interval_s))
        return self._trainer() == trainer

    def _stop_in_a_write(self, trainer: int) -> bool:
        """SIGSTOP while a checkpoint has only its temporary name; False if the training was over before."""
        torn = self._half_written()  # by earlier kills
        while alive(trainer):
            if self._half_written() - torn:
                os.kill(trainer, signal.SIGSTOP)
                time.sleep(0.002)
                if self._half_written() - torn:
                    return True
                os.kill(trainer, signal.SIGCONT)
            time.sleep(self.rng.uniform(0, 0.002))
        return False

    def _trainer(self) -> int | None:
        """The process that trains: it holds the run's lock and has not handed over the outputs."""
        for lock in self._found("lock"):
            pid = lock.read_text()
            if pid and alive(int(pid)) and not self._found("delivered"):
                return int(pid)
        return None

    def _newest(self) -> int:
        """The number of the last checkpoint, 0 before the first."""
        return max((int(folder.name.removeprefix("step-")) for folder in self._found("step-*")), default=0)

    def _half_written(self) -> set[tuple[str, int]]:
        """Checkpoints under their temporary names, each with the time at which it last changed."""
        found = set()
        for folder in self._found(".step-*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                found.add((folder.name, folder.stat().st_mtime_ns))
        return found

    def _found(self, pattern: str) -> list[Path]:
        return list((self.project.root / ".scratch/train").glob(f"*/{pattern}"))


def wait_until(condition: Callable[[], bool]) -> None:
    """Raises `UserError` if that takes longer than anything here should."""
    stop = time.monotonic() + STALL_S
    while not condition():
        if time.monotonic() > stop:
            raise UserError(f"nothing happened for {STALL_S:.0f} s; the machine is too busy, or a run hangs")
        time.sleep(0.01)


def alive(pid: int) -> bool:
    return _answers(os.kill, pid)


def group_alive(pgid: int) -> bool:
    return _answers(os.killpg, pgid)


def _answers(kill: Callable[[int, int], None], number: int) -> bool:
    try:
        kill(number, 0)
    except ProcessLookupError:
        return False
    return True
