"""What a finished run hands over: checkpoint, metrics, curve, the facts of the run, measured values.

Nothing here has a clock in it except `write_measured`, whose file is not an output of any stage.
"""

import csv
import io
import math
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from x1_pretrain.checkpoint import publish
from x1_pretrain.config import as_dict
from x1_pretrain.corpus.loader import Tokens
from x1_pretrain.deliverables.files import sha256_of, write_json, write_text
from x1_pretrain.determinism import Used
from x1_pretrain.economics.cost import usd_for
from x1_pretrain.economics.flops import six_nd
from x1_pretrain.errors import UserError
from x1_pretrain.identity import TORCH, source_sha256
from x1_pretrain.model import GPT
from x1_pretrain.noise_scale import GradientNoise, noise_scale_tokens
from x1_pretrain.run_log import LogRow, as_csv
from x1_pretrain.run_spec import RunSpec

LAST_STEPS = 20  # the training loss handed over is the mean of this many steps
CURVE_ROWS = 2000  # a longer curve is thinned to about this many rows


@dataclass(frozen=True)
class Finished:
    """A run that came to its end, and all that is to be written about it."""

    spec: RunSpec
    used: Used
    model: GPT
    tokens: Tokens
    val_bytes: int
    log: list[LogRow]
    evaluations: list[dict[str, Any]]
    alarms: list[dict[str, Any]]
    spikes: list[dict[str, Any]]
    vitals: list[dict[str, Any]]
    skipped_steps: int
    skipped_data: list[list[int]]  # [first sequence, count], left out by a rewind
    planned_steps: int  # more than `spec` has where the cap made the run cool down early
    fingerprint: str
    state_sha256: str
    measured: dict[str, Any]

    @property
    def val_loss_nats(self) -> float:
        return self.evaluations[-1]["val_loss_nats"]

    def val_tokens(self) -> int:
        train = self.spec.train
        return train.val_tokens // train.seq_len * train.seq_len

    def bits_per_byte(self, loss_nats: float) -> float:
        """The unit that compares across tokenizers: total nats / ln 2 / UTF-8 bytes predicted."""
        return loss_nats * self.val_tokens() / math.log(2) / self.val_bytes

    def usd_spent(self, share: float = 1.0) -> float:
        return usd_for(self.measured["elapsed_s"] * share, self.spec.money.price_usd_per_hour)


def trunk_rows(log: list[LogRow], spec: RunSpec) -> list[LogRow]:
    """The steps of the whole run: the trunk, and the cool-down of the last branch only."""
    branches = spec.schedule.branches
    last = len(branches) - 1
    return [row for row in log if row.branch == last or row.step <= branches[row.branch].fork]


def metrics(finished: Finished) -> dict[str, Any]:
    """metrics.json: numbers only, the unit in the name."""
    spec = finished.spec
    rows = [row for row in trunk_rows(finished.log, spec) if row.finite]
    if not rows:
        raise UserError(f"{spec.run_id}: no step had a finite loss and gradient, so that nothing was trained")
    D = spec.tokens(spec.schedule.total_steps)
    tail = [row.loss_nats for row in rows[-LAST_STEPS:]]
    return {
        "model": spec.model,
        "N": spec.N,
        "N_total": finished.model.n_params(),
        "D": D,
        "steps": spec.schedule.total_steps,
        "C_6nd": six_nd(spec.N, D),
        "C_counted": spec.flops(finished.tokens.n_vocab, 0, spec.schedule.total_steps),
        "val_loss_nats": finished.val_loss_nats,
        "val_bits_per_byte": finished.bits_per_byte(finished.val_loss_nats),
        "val_tokens": finished.val_tokens(),
        "train_loss_nats": sum(tail) / len(tail),
        "grad_norm_max": max(row.grad_norm for row in rows),
        "noise_scale_tokens": noise_scale_tokens(
            [GradientNoise(**e["noise"]) for e in finished.evaluations if "noise" in e]
        ),
        "alarms": len(finished.alarms),
        "spikes": len(finished.spikes),
        "rewinds": sum(spike["action"] == "rewind" for spike in finished.spikes),
        "skipped_steps": finished.skipped_steps,
        "skipped_sequences": sum(count for _, count in finished.skipped_data),
    }


def sweep_run(finished: Finished) -> dict[str, Any]:
    """scaling-law/runs/<model>.json: one point of L(N, D) per branch."""
    spec = finished.spec
    points = []
    branches = spec.schedule.branches
    for i, branch in enumerate(branches):
        (loss,) = [
            e["val_loss_nats"] for e in finished.evaluations if e["branch"] == i and e["step"] == branch.end
        ]
        D = spec.tokens(branch.end)
        points.append(
            {
                "branch": branch.fraction,
                "steps": branch.end,
                "D": D,
                "C_6nd": six_nd(spec.N, D),
                "C_counted": spec.flops(finished.tokens.n_vocab, 0, branch.end),
                "val_loss_nats": loss,
                "val_bits_per_byte": finished.bits_per_byte(loss),
                "usd_spent": finished.usd_spent((branch.end - branch.start) / spec.schedule.work_steps),
            }
        )
    return {
        "run_id": spec.run_id,
        "model": spec.model,
        "seed": spec.seed,
        "n_layer": spec.shape.n_layer,
        "d_model": spec.shape.d_model,
        "N": spec.N,
        "N_total": finished.model.n_params(),
        "points": points,
    }


def write_run(finished: Finished, checkpoint: Path, metrics_path: Path, curve_path: Path) -> None:
    """The outputs of a run: checkpoint folder, metrics.json, curve.csv."""
    spec, used, results = finished.spec, finished.used, metrics(finished)
    weights = publish(
        checkpoint,
        finished.model,
        {
            "shape": as_dict(spec.shape),
            "recipe": as_dict(spec.recipe),
            "n_vocab": finished.tokens.n_vocab,
            "seq_len": spec.train.seq_len,
            "base_width": spec.train.base_width,
            "tokenizer": finished.tokens.tokenizer["name"],
        },
    )
    write_json(
        checkpoint / "run.json",
        {
            "run_id": spec.run_id,
            "profile": spec.profile,
            "model": spec.model,
            "seed": spec.seed,
            "status": "finished" if spec.schedule.total_steps == finished.planned_steps else "annealed",
            "planned_steps": finished.planned_steps,
            "config": {
                "device": as_dict(spec.device),
                "train": as_dict(spec.train),
                "shape": as_dict(spec.shape),
                "recipe": as_dict(spec.recipe),
            },
            "versions": {
                "python": platform.python_version(),
                "torch": TORCH,
                "numpy": version("numpy"),
                "x1_pretrain": version("x1-pretrain"),
            },
            "cluster": as_dict(used),
            "data": {
                "data_sha256": finished.tokens.data_sha256,
                "tokenizer": finished.tokens.tokenizer["name"],
                "tokenizer_sha256": finished.tokens.tokenizer["sha256"],
            },
            "source_sha256": source_sha256(),
            "fingerprint": finished.fingerprint,
            "state_sha256": finished.state_sha256,
            "checkpoint": {
                "file": weights.name,
                "sha256": sha256_of(weights),
                "bytes": weights.stat().st_size,
            },
            "usd_spent": finished.usd_spent(),
            "price_usd_per_hour": spec.money.price_usd_per_hour,
            "results": results,
        },
    )
    write_text(
        checkpoint / "log.csv",
        as_csv(finished.log, spec.train.peak_lr(spec.recipe.optimizer), spec.train.grad_clip),
    )
    watched = {"alarms": finished.alarms, "spikes": finished.spikes, "vitals": finished.vitals}
    write_json(checkpoint / "monitor.json", watched)
    write_json(metrics_path, results)
    write_curve(finished, curve_path)


def write_curve(finished: Finished, path: Path) -> None:
    """curve.csv: means over as many steps as keep it short; val loss where it was evaluated."""
    spec, last = finished.spec, len(finished.spec.schedule.branches) - 1
    rows = trunk_rows(finished.log, spec)
    evaluated = {e["step"]: e["val_loss_nats"] for e in finished.evaluations if e["branch"] == last}
    peak_lr = spec.train.peak_lr(spec.recipe.optimizer)
    every = -(-len(rows) // CURVE_ROWS)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["step", "tokens", "lr", "train_loss_nats", "val_loss_nats", "grad_norm"])
    for start in range(0, len(rows), every):
        group = rows[start : start + every]
        step = group[-1].step
        finite = [row for row in group if row.finite]
        val = next((evaluated[row.step] for row in group if row.step in evaluated), None)
        writer.writerow(
            [
                step,
                spec.tokens(step),
                f"{peak_lr * group[-1].lr_scale:.6g}",
                f"{sum(row.loss_nats for row in finite) / len(finite):.6g}" if finite else "",
                "" if val is None else f"{val:.6g}",
                f"{max(row.grad_norm for row in finite):.6g}" if finite else "",
            ]
        )
    write_text(path, stream.getvalue())


def write_measured(finished: Finished, path: Path) -> None:
    """Seconds, tokens/s, MFU, the tracking id: true of this run on this machine only."""
    write_json(path, {**finished.measured, "host": finished.used.name})


def mlflow_params(spec: RunSpec) -> dict[str, Any]:
    """What identifies a run in MLflow."""
    return {
        "profile": spec.profile,
        "model": spec.model,
        "seed": spec.seed,
        "N": spec.N,
        "steps": spec.schedule.total_steps,
        **{f"recipe.{key}": value for key, value in as_dict(spec.recipe).items()},
    }
