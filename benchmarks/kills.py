"""Kills at random moments change no bit of a run: one JSON line.

    python benchmarks/kills.py --kills 30

In a temporary copy of the project, with the smoke profile and a longer run, `dvc repro` makes the stage
`train` undisturbed; then again, while DVC, its trainer or both are killed over and over. Only a kill that
hit a running training counts. Outputs, training state and dvc.lock must be the same, and the run must have
been resumed, not begun anew; else exit status 1.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from harassed import KINDS, REPRO, Harassed

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the copy of the project that the tests make
from tests.e2e.conftest import Project, fresh_project
from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json, sha256_of
from x1_pretrain.errors import UserError, exit_on_user_error

PROFILE, FLOPS = "experiments/profiles/smoke.yaml", 3.0e9  # of its model X1: about 140 steps
LONGER, LONGER_PER_KILL = 3.0, 1.4  # times as long; most of it is trained by orphans while DVC starts again
CHECKPOINT_EVERY = 10  # steps


@dataclass
class Tally:
    """Kills that hit, by kind, and what every run that was made under them ended with."""

    hits: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    waits: int = 0  # of a trainer for the orphan of a killed DVC
    outcomes: list[dict[str, str]] = field(default_factory=list)


def prepare(project: Project, kills: int) -> None:
    """Make the training long enough for so many kills, and everything before it; commit.

    One thread: two that wait for each other take a busy machine many times as long.
    """
    flops = FLOPS * (LONGER + LONGER_PER_KILL * kills)
    project.replace(PROFILE, "threads: 2", "threads: 1")
    project.replace(PROFILE, "flops: 3.0e+9", f"flops: {flops:e}")
    project.replace(PROFILE, "checkpoint_every: 50", f"checkpoint_every: {CHECKPOINT_EVERY}")
    project.run("dvc", "repro", "tokenize")
    project.commit()


def undisturbed(project: Project) -> dict[str, str]:
    """Make the run and return its outcome."""
    forget(project)
    project.run(*REPRO)
    return outcome(project)


def disturbed(project: Project, kills: int, rng: random.Random) -> Tally:
    """Make the run while killing until so many kills hit; a run that ends before is followed by another.

    Raises `UserError` for a run that no kill hit.
    """
    tally = Tally()
    while tally.hits.total() < kills:
        forget(project)
        with Harassed(project, rng) as run:
            while (tally.hits + run.hits).total() < kills and run.training():
                run.kill(rarest(tally.hits + run.hits, rng))
            run.finish()
            if not run.hits:
                raise UserError(f"{project.root}: no kill hit the run, it is too short for this machine")
            tally.hits += run.hits
            tally.resumes += run.says("resuming at step")
            tally.waits += run.says("waiting for it to end")
        tally.outcomes.append(outcome(project))
    return tally


def rarest(hits: Counter[str], rng: random.Random) -> str:
    """A kind of kill that has hit least often so far."""
    return rng.choice([kind for kind in KINDS if hits[kind] == min(hits[k] for k in KINDS)])


def forget(project: Project) -> None:
    """As if the run had never been made."""
    project.run("git", "checkout", "-q", "dvc.lock")
    shutil.rmtree(project.root / ".scratch", ignore_errors=True)


def outcome(project: Project) -> dict[str, str]:
    """sha256 of the final training state, of every output of the stage, and of dvc.lock."""
    files = sorted((project.root / paths.CHECKPOINT).iterdir())
    files += [project.root / name for name in (paths.METRICS, paths.CURVE, "dvc.lock")]
    state = read_json(project.root / paths.CHECKPOINT / "run.json")["state_sha256"]
    return {"state": state, **{file.name: sha256_of(file) for file in files}}


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=30, help="kills that hit (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the kinds and of the moments")
    options = parser.parse_args(argv)
    if options.kills < 1:
        raise UserError(f"--kills {options.kills}: must be at least 1")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="x1-kills-") as folder:
        project = fresh_project(Path(folder))
        prepare(project, options.kills)
        expected = undisturbed(project)
        tally = disturbed(project, options.kills, random.Random(options.seed))
    different = {
        name
        for found in tally.outcomes
        for name in found.keys() | expected.keys()
        if found.get(name) != expected.get(name)
    }
    result = {
        "benchmark": "kills",
        "equal": not different,
        "kills": dict(sorted(tally.hits.items())),
        "runs": len(tally.outcomes),
        "resumes": tally.resumes,
        "waits": tally.waits,
        "seconds": round(time.monotonic() - began, 1),
        "seed": options.seed,
        "sha256": expected,
        "different": sorted(different),
        "torch": torch.__version__,
    }
    print(json.dumps(result))
    sys.exit(1 if different or not tally.resumes else 0)


if __name__ == "__main__":
    main()
