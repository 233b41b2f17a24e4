"""The log of a run, step by step: as it is written while training, and as it is handed over."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LogRow:
    """One optimizer step: `step` counts from 1 within the run, `lr_scale` multiplies the profile's lr."""

    branch: int
    step: int
    lr_scale: float
    loss_nats: float
    grad_norm: float
    first_sequence: int  # of the loader's order, whatever a rewind skipped
    sequences: int
    updated: bool  # False where the update was left out

    @property
    def finite(self) -> bool:
        """False for a step that train.non_finite: skip left out."""
        return math.isfinite(self.loss_nats) and math.isfinite(self.grad_norm)


def read_log(path: Path) -> list[LogRow]:
    with path.open(newline="", encoding="utf-8") as stream:
        return [
            LogRow(int(r[0]), int(r[1]), *map(float, r[2:5]), int(r[5]), int(r[6]), r[7] == "1")
            for r in csv.reader(stream)
        ]


def as_csv(log: Sequence[LogRow], peak_lr: float, grad_clip: float | None) -> str:
    """Every step of every branch, with the data it read: what a diagnosis needs of the log."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = ("branch", "step", "lr", "loss_nats", "grad_norm", "clipped", "first_sequence", "sequences")
    writer.writerow([*names, "updated"])
    for row in log:
        clipped = int(grad_clip is not None and row.grad_norm > grad_clip)
        data = (row.first_sequence, row.sequences, int(row.updated))
        writer.writerow(
            [row.branch, row.step, row.lr_scale * peak_lr, row.loss_nats, row.grad_norm, clipped, *data]
        )
    return stream.getvalue()
