"""Read and check runs.csv: the points (N, D, loss) a scaling law is fitted to.

Each way in which such a table is usually wrong has its own sentence, because a fit accepts all of
them in silence and returns numbers.
"""

import csv
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.errors import UserError
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN

REQUIRED = ("run_id", "N", "D", "val_loss")
DOLLARS = ("usd_spent", "dollars_spent")
MIN_POINTS = 3
MIN_COUNT = 1e3  # fewer parameters or tokens than this: the unit is wrong
MIN_TOKENS_PER_PARAMETER, MAX_TOKENS_PER_PARAMETER = 1e-3, 1e6
MAX_LOSS_NATS = 20.0  # a guess among 65,536 words costs 11
ARRAYS = ("N", "D", "loss_nats", "branch", "usd_spent", "N_total", "C_counted")
SAME_BUDGET = 1.15  # D is a whole number of steps, so C differs a little within one budget


@dataclass(frozen=True)
class Runs:
    """Checked points, in the order of the file. Arrays have one element a run and are read-only."""

    run_id: tuple[str, ...]
    N: np.ndarray
    D: np.ndarray
    loss_nats: np.ndarray
    branch: np.ndarray | None  # fraction of the full run at which a branch ends
    usd_spent: np.ndarray | None
    sha256: str
    model: tuple[str, ...] | None = None
    N_total: np.ndarray | None = None  # embeddings and head included
    C_counted: np.ndarray | None = None  # FLOPs, head and attention included

    def __len__(self) -> int:
        return len(self.run_id)

    @property
    def C(self) -> np.ndarray:
        """FLOPs of each run, 6ND."""
        return FLOPS_PER_PARAMETER_TOKEN * self.N * self.D

    @property
    def points(self) -> int:
        """Distinct (N, D): seeds repeated at one of them teach nothing about the others."""
        return len({(n, d) for n, d in zip(self.N, self.D, strict=True)})

    def take(self, rows: np.ndarray) -> "Runs":
        """Only the rows with these indices, or where this mask is true."""
        kept = np.arange(len(self))[rows]

        def of(values: Any) -> Any:
            return None if values is None else values[kept]

        return dataclasses.replace(
            self,
            run_id=tuple(self.run_id[i] for i in kept),
            model=None if self.model is None else tuple(self.model[i] for i in kept),
            **{name: of(getattr(self, name)) for name in ARRAYS},
        )

    def with_sizes(self, N: np.ndarray) -> "Runs":
        """The same runs with their parameters counted otherwise."""
        return dataclasses.replace(self, N=N)

    def budgets(self) -> list[np.ndarray]:
        """Row indices of the runs of one budget (C within 15%), in order of increasing C."""
        groups: list[list[int]] = []
        for i in np.argsort(self.C, kind="stable"):
            if groups and self.C[i] <= SAME_BUDGET * self.C[groups[-1][0]]:
                groups[-1].append(int(i))
            else:
                groups.append([int(i)])
        return [np.array(sorted(group)) for group in groups]


def plural(number: int, noun: str) -> str:
    """ "1 budget", "3 budgets": for the sentences that give reasons."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def read_runs(path: Path) -> Runs:
    """Parse and check a CSV with the columns run_id, N, D, val_loss (nats per token).

    model, branch, N_total, C_counted and one of usd_spent, dollars_spent are read where present; other
    columns are ignored.
    Raises `UserError` for an absent file or column, a value that is not a finite positive number,
    a run id given twice, N or D in the wrong unit, and fewer than 3 distinct (N, D).
    """
    rows = _rows(path)
    run_id = tuple(row["run_id"] for row in rows)
    for name in run_id:
        if run_id.count(name) > 1:
            raise UserError(
                f"{path}: run_id {name!r} stands {run_id.count(name)} times; give every run an id of its own"
            )
    columns = {
        key: np.array([_positive(path, row, key) for row in rows]) for key in REQUIRED if key != "run_id"
    }
    N, D = columns["N"], columns["D"]
    for name, n, d, loss in zip(run_id, N, D, columns["val_loss"], strict=True):
        _check_units(path, name, n, d, loss)
    dollars = next((key for key in DOLLARS if key in rows[0]), None)
    arrays = {
        "N": N,
        "D": D,
        "loss_nats": columns["val_loss"],
        "branch": _optional(path, rows, "branch"),
        "usd_spent": _optional(path, rows, dollars) if dollars else None,
        "N_total": _optional(path, rows, "N_total"),
        "C_counted": _optional(path, rows, "C_counted"),
    }
    for array in arrays.values():
        if array is not None:
            array.flags.writeable = False
    model = tuple(row["model"] for row in rows) if "model" in rows[0] else None
    runs = Runs(run_id=run_id, sha256=sha256_of(path), model=model, **arrays)
    if runs.points < MIN_POINTS:
        raise UserError(
            f"{path}: {runs.points} distinct (N, D) in {len(rows)} rows; a law needs at least {MIN_POINTS}"
        )
    return runs


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a CSV with the columns {', '.join(REQUIRED)}")
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.DictReader(stream)
        header = reader.fieldnames or []
        for key in REQUIRED:
            if key not in header:
                raise UserError(
                    f"{path}: the column {key!r} is missing among {', '.join(header) or 'none'}; "
                    f"{', '.join(REQUIRED)} are needed"
                )
        rows = list(reader)
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise UserError(f"{path}: line {line} does not have the {len(header)} values of the header")
    if not rows:
        raise UserError(f"{path}: no rows below the header; a law needs at least {MIN_POINTS}")
    return rows


def _number(path: Path, row: dict[str, str], key: str) -> float:
    try:
        value = float(row[key])
    except ValueError as error:
        raise UserError(
            f"{path}: run {row['run_id']!r} has {key} {row[key]!r}, which is not a number"
        ) from error
    if not math.isfinite(value):
        raise UserError(
            f"{path}: run {row['run_id']!r} has {key} {row[key]}; "
            "leave a run without a finite value out of the file"
        )
    return value


def _positive(path: Path, row: dict[str, str], key: str) -> float:
    value = _number(path, row, key)
    if value <= 0:
        unit = "nats per token" if key == "val_loss" else "a count"
        raise UserError(f"{path}: run {row['run_id']!r} has {key} {row[key]}; it is {unit}, above 0")
    return value


def _optional(path: Path, rows: list[dict[str, str]], key: str) -> np.ndarray | None:
    if key not in rows[0]:
        return None
    return np.array([_number(path, row, key) for row in rows])


def _check_units(path: Path, name: str, N: float, D: float, loss: float) -> None:
    for key, value in (("N", N), ("D", D)):
        if value < MIN_COUNT:
            raise UserError(
                f"{path}: run {name!r} has {key} {value:g}, which looks like millions or billions; "
                f"write raw counts, such as {value:g}e9 for {value:g} billion"
            )
    if D / N < MIN_TOKENS_PER_PARAMETER:
        raise UserError(
            f"{path}: run {name!r} has N {N:g} and D {D:g}, {D / N:.1g} tokens per parameter; "
            "D is probably in thousands or millions and should be raw tokens"
        )
    if D / N > MAX_TOKENS_PER_PARAMETER:
        raise UserError(
            f"{path}: run {name!r} has N {N:g} and D {D:g}, {D / N:.1g} tokens per parameter; "
            "N is probably in thousands or millions, or D was multiplied twice; both are raw counts"
        )
    if loss > MAX_LOSS_NATS:
        raise UserError(
            f"{path}: run {name!r} has val_loss {loss:g} nats per token, worse than any guess; "
            "if it is a perplexity, write its natural logarithm"
        )
