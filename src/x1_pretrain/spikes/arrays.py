"""The bulky part of an incident's record: the log of every step, and token counts."""

import csv
import io
import math

import numpy as np

from x1_pretrain.spikes.incident import Findings
from x1_pretrain.spikes.lab import Stream

LOG_COLUMNS = ("run", "step", "batch", "loss_nats", "grad_norm", "lr", "skipped")


def finite(value: float | None) -> float | None:
    """The value, or None where JSON has no word for it (NaN, infinity)."""
    return value if value is not None and math.isfinite(value) else None


def token_counts(stream: Stream, batches: tuple[int, int]) -> np.ndarray:
    """Counts [V] over a range of batches, both ends included."""
    ids = np.concatenate([stream.batch(n).ravel() for n in range(batches[0], batches[1] + 1)])
    return np.bincount(ids, minlength=stream.n_vocab)


def log_csv(findings: Findings, peak_lr: float) -> str:
    """log.csv: every step of the spoiled run, the control and each remedy.

    `skipped` counts the batches skipped just before a step; `batch` is the one that it read.
    """
    recovery = findings.recovery
    policies = {name: run.rows for name, run in recovery.policies.items() if name != "no_action"}
    runs = {
        "incident": (*findings.incident.rows, *recovery.policies["no_action"].rows),
        "control": recovery.control.rows,
        **policies,
    }
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(LOG_COLUMNS)
    for run, rows in runs.items():
        previous = rows[0].batch - 1
        for row in rows:
            loss, norm = finite(row.result.loss_nats), finite(row.result.grad_norm)
            lr, skipped = row.lr_scale * peak_lr, row.batch - previous - 1
            writer.writerow([run, row.step, row.batch, loss, norm, lr, skipped])
            previous = row.batch
    return stream.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    """A compressed .npz in memory; numpy stamps its members with a fixed date."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()
