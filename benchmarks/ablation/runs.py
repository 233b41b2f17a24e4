"""The finished experiments of one commit, read from Git in one process, without DVC.

`measured/train.json` is no output of the stage, but Git tracks it, so DVC commits it with the experiment.
Where DVC skipped or restored the run, it is still the file of the baseline commit: then nothing was measured.
"""

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML

from ablation.plan import Values, flat
from ablation.queue import command, finished
from x1_pretrain import paths
from x1_pretrain.errors import UserError
from x1_pretrain.study import profile_path

NAME = re.compile(r"ablation-(?P<row>.+?)(-tune(?P<trial>\d+))?-seed(?P<seed>\d+)")
MEASURED = paths.MEASURED / "train.json"


@dataclass(frozen=True)
class Run:
    """One finished experiment. `train_loss` is the curve's, in nats; its rows are at `tokens`, `step`."""

    name: str
    row: str
    trial: int | None
    seed: int
    values: Values
    metrics: dict[str, Any]
    step: tuple[int, ...]
    tokens: tuple[int, ...]
    train_loss: tuple[float, ...]
    measured: dict[str, Any] | None  # None: restored or skipped, so nothing was measured

    @property
    def val_loss(self) -> float:
        return self.metrics["val_loss_nats"]

    @property
    def tokens_per_s(self) -> float | None:
        """Of training alone: no compilation, no evaluation."""
        return self.measured["tokens_per_s"] if self.measured else None


def read_runs(commit: str) -> list[Run]:
    """Every finished experiment of a commit whose name is an ablation's."""
    matches = {name: match for name in sorted(finished(commit)) if (match := NAME.fullmatch(name))}
    refs = {name: f"refs/exps/{commit[:2]}/{commit[2:]}/{name}" for name in matches}
    params = blobs(f"{ref}:{paths.PARAMS}" for ref in refs.values())
    choices = {name: yaml(params[f"{ref}:{paths.PARAMS}"][1]) for name, ref in refs.items()}
    profiles = {name: f"{refs[name]}:{profile_path(choices[name]['profile'])}" for name in refs}
    files = (paths.METRICS, paths.CURVE, MEASURED)
    rest = [f"{ref}:{file}" for ref in refs.values() for file in files]
    found = blobs([*profiles.values(), *rest, f"{commit}:{MEASURED}"])
    runs = []
    for name, match in matches.items():
        metrics, curve, measured = (found[f"{refs[name]}:{file}"] for file in files)
        table = list(csv.DictReader(io.StringIO(curve[1])))
        fresh = measured[0] is not None and measured[0] != found[f"{commit}:{MEASURED}"][0]
        runs.append(
            Run(
                name=name,
                row=match["row"],
                trial=None if match["trial"] is None else int(match["trial"]),
                seed=int(match["seed"]),
                values=flat(choices[name]) | flat(yaml(found[profiles[name]][1])),
                metrics=json.loads(metrics[1]),
                step=tuple(int(row["step"]) for row in table),
                tokens=tuple(int(row["tokens"]) for row in table),
                train_loss=tuple(float(row["train_loss_nats"] or "nan") for row in table),
                measured=json.loads(measured[1]) if fresh else None,
            )
        )
    return runs


def values_of(commit: str) -> Values:
    """The settings that a commit has in params.yaml and its profile."""
    choice = yaml(blobs([name := f"{commit}:{paths.PARAMS}"])[name][1])
    profile = f"{commit}:{profile_path(choice['profile'])}"
    return flat(choice) | flat(yaml(blobs([profile])[profile][1]))


def yaml(text: str) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(text)


def blobs(names: Iterable[str]) -> dict[str, tuple[str | None, str]]:
    """`<revision>:<path>` -> object id and text; (None, "") for what is not there."""
    names = list(names)
    asked = "".join(f"{name}\n" for name in names).encode()
    output = subprocess.run(
        ["git", "cat-file", "--batch"], input=asked, capture_output=True, check=True
    ).stdout
    found: dict[str, tuple[str | None, str]] = {}
    start = 0
    for name in names:
        end = output.index(b"\n", start)
        header = output[start:end].decode()
        start = end + 1
        if header.endswith(" missing"):
            found[name] = None, ""
            continue
        identity, _, size = header.split()
        found[name] = identity, output[start : start + int(size)].decode()
        start += int(size) + 1
    return found


def commit_with_runs(revision: str) -> str:
    """The newest commit, from a revision backwards, that has finished ablations. Raises `UserError`."""
    refs = command("git", "for-each-ref", "--format=%(refname)", "refs/exps/").split()
    having = {
        "".join(ref.split("/")[2:4])
        for ref in refs
        if ref.count("/") == 4 and NAME.fullmatch(ref.split("/")[4])
    }
    for commit in command("git", "rev-list", revision).split():
        if commit in having:
            return commit
    raise UserError(
        f"--revision {revision}: no commit up to it has finished experiments named ablation-...; "
        "run `python benchmarks/ablations.py run` first"
    )
