"""Approach 1: the lower envelope of the training curves (Hoffmann et al. 2022, section 3.1).

At every compute C the size whose training loss is lowest. With few sizes that is a staircase, of which only
the steps inform: where the envelope passes from one size to the next both are equally good, so that the best
size for that C lies between them. A power law through the steps gives the exponents.

With sizes close to each other the noise of a training loss hides the steps; a factor of 4 shows them.

All curves of an IsoFLOP set are at the same phase of their schedule at the same C, so they compare; with
other schedules, or smoothing that crosses a cool-down, the envelope is biased.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from x1_pretrain.errors import UserError
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN
from x1_pretrain.scaling.runs import Runs, plural

BINS_PER_DECADE = 25  # in C: the losses of single steps are noisy, those of a bin are averaged
MIN_STEPS = 2


@dataclass(frozen=True)
class Curve:
    """The training loss of a model of N parameters after D tokens, increasing; nats per token."""

    N: float
    D: np.ndarray
    loss_nats: np.ndarray

    def smoothed(self, edges: np.ndarray) -> np.ndarray:
        """Mean loss in each bin of ln C between `edges`; infinite where the curve has no point."""
        log_C = np.log(FLOPS_PER_PARAMETER_TOKEN * self.N * self.D)
        which = np.digitize(log_C, edges) - 1
        inside = (which >= 0) & (which < len(edges) - 1)
        bins = len(edges) - 1
        count = np.bincount(which[inside], minlength=bins)
        total = np.bincount(which[inside], weights=self.loss_nats[inside], minlength=bins)
        return np.where(count > 0, total / np.maximum(count, 1), np.inf)


@dataclass(frozen=True)
class Envelope:
    """Steps of the envelope: compute `C` and size `N` between the two that meet there."""

    C: tuple[float, ...]
    N: tuple[float, ...]
    refused: str | None


def read_curves(folder: Path, runs: Runs) -> list[Curve]:
    """`<model>.csv` with tokens and train_loss_nats for every model of `runs`, smallest first.

    Raises `UserError` where the runs have no column model, or a file or column is missing or no number.
    """
    if runs.model is None:
        raise UserError(
            f"{folder}: which curve is whose? give runs.csv the column model, as the files' names"
        )
    sizes = dict(zip(runs.model, runs.N, strict=True))
    return [
        _read(folder / f"{model}.csv", float(N)) for model, N in sorted(sizes.items(), key=lambda i: i[1])
    ]


def _read(path: Path, N: float) -> Curve:
    if not path.is_file():
        raise UserError(f"{path}: no such file; a training curve has the columns tokens, train_loss_nats")
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    try:
        kept = [row for row in rows if row["train_loss_nats"]]  # a step left out has no loss
        D, loss = (np.array([float(row[key]) for row in kept]) for key in ("tokens", "train_loss_nats"))
    except KeyError as error:
        raise UserError(
            f"{path}: the column {error} is missing; tokens and train_loss_nats are needed"
        ) from error
    except ValueError as error:
        raise UserError(f"{path}: a value is not a number ({error})") from error
    return Curve(N, D, loss)


def envelope(curves: Sequence[Curve]) -> Envelope:
    """The steps from each size to the next larger one, or why there are too few for a power law."""
    if len({curve.N for curve in curves}) < 3:
        return Envelope((), (), f"{plural(len(curves), 'training curve')}; an envelope needs 3 sizes")
    log_C = [np.log(FLOPS_PER_PARAMETER_TOKEN * c.N * c.D) for c in curves if len(c.D)]
    low, high = max(x[0] for x in log_C), min(x[-1] for x in log_C)
    bins = int((high - low) / np.log(10) * BINS_PER_DECADE)
    if len(log_C) < len(curves) or bins < 3:
        return Envelope((), (), "the training curves have no range of compute in common")
    edges = np.linspace(low, high, bins + 1)
    losses = np.stack([curve.smoothed(edges) for curve in curves])
    seen = np.isfinite(losses).all(axis=0)
    losses, starts = losses[:, seen], edges[:-1][seen]
    # Where one curve crosses another the noise of many bins decides, not that of the last in which one leads.
    steps = []
    for i in range(len(curves) - 1):
        lead = np.cumsum(losses[i + 1] - losses[i])  # rises while the smaller size is the better one
        last = int(np.argmax(lead))
        if lead[last] > 0 and last + 1 < len(starts):
            steps.append((float(np.exp(starts[last + 1])), float(np.sqrt(curves[i].N * curves[i + 1].N))))
    C, N = (tuple(values) for values in zip(*steps, strict=True)) if steps else ((), ())
    if len(steps) < MIN_STEPS:
        return Envelope(
            C, N,
            f"the lower envelope of {len(curves)} curves passes to a larger size "
            f"{plural(len(steps), 'time')}; a power law needs {MIN_STEPS} such steps: more sizes or compute",
        )  # fmt: skip
    return Envelope(C, N, None)
