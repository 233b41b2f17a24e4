"""Spikes in somebody's training log, and which replays would settle their cause.

    python -m x1_pretrain.spikes.analyse LOG [--loss COLUMN] [--grad-norm COLUMN] [--json]

A log shows that something happened and what came after. Why it happened only replays can tell, so that the
answer for each spike is a family, or "undetermined", with the reason and the replays to run.
"""

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.spikes.logs.formats import open_log
from x1_pretrain.spikes.logs.found import Analysis, Spike, analyse
from x1_pretrain.spikes.logs.traps import notes

Family = Literal["benign outlier", "numeric", "restart or schedule", "undetermined"]

REPLAY_DATA = (
    "forward passes of batches {first} to {last}, and of 8 others, on the checkpoint before them: high there "
    "means the data"
)
REPLAY_STATE = (
    "other batches from the checkpoint before step {first}: spikes too means the state (optimizer or lr)"
)
REPLAY_CLIP = "the same steps with each update's RMS limited to 1: cured means Adam's second moment"
REPLAY_LR = "the same steps at the last trusted lr: cured, where clipping the update does not, means the lr"
REPLAY_SAME = (
    "the same state and batches twice: if the numbers differ, suspect the machine, kernels or the loader"
)


@dataclass(frozen=True)
class Reading:
    """What the log alone supports for one spike."""

    family: Family
    reason: str
    replays: tuple[str, ...]


def reading(spike: Spike) -> Reading:
    """Family and next steps for a spike, from its shape, its outcome and what happened beside it."""
    span = {"first": spike.first_step, "last": spike.last_step}
    data, state = REPLAY_DATA.format(**span), REPLAY_STATE.format(**span)
    if spike.shape == "not-finite":
        reason = "a loss or norm is not finite: overflow, hardware, or a divergence that ended there"
        return Reading("numeric", reason, (REPLAY_SAME, REPLAY_LR, data))
    if spike.events:
        return Reading(
            "restart or schedule",
            f"{'; '.join(spike.events)}, within 50 steps before it",
            (f"the same steps without that event ({spike.events[0]})", REPLAY_LR, data),
        )
    if spike.outcome == "transparent":
        reason = "one or two steps stood out and the losses after them did not suffer: hard batches"
        return Reading("benign outlier", reason, (data,))
    if spike.shape == "downward":
        reason = "the loss fell out of line: repeated or trivial text, or targets that leak"
        return Reading("undetermined", reason, (data,))
    if spike.shape in ("grad-norm-led", "grad-norm-only"):
        reason = "the gradient norm moved first, which state and data can both do"
        return Reading("undetermined", reason, (state, REPLAY_CLIP, REPLAY_LR, data))
    if spike.shape == "gradual":
        reason = "the loss climbed over several steps, as with a state that gets worse"
        return Reading("undetermined", reason, (state, REPLAY_LR, REPLAY_CLIP, data))
    reason = "the loss jumped at once, as with bad batches, but also with one update too large"
    return Reading("undetermined", reason, (data, state, REPLAY_CLIP, REPLAY_SAME))


def report(path: Path, columns: dict[str, str]) -> tuple[Analysis, list[Reading]]:
    """The analysis of a log and a reading of each spike. Raises `UserError` for a log that says nothing."""
    log = open_log(path, columns)
    analysis = analyse(log.points(), log.format)
    if analysis.points == 0:
        raise UserError(f"{path}: read as {log.format}, but no line has both a step and a training loss")
    if analysis.points == 1:
        raise UserError(f"{path}: read as {log.format}, it has one step only; a spike needs steps around it")
    if analysis.not_finite == analysis.points:
        raise UserError(
            f"{path}: none of its {analysis.points} losses is finite, from step {analysis.first_step} on; "
            "the log begins after what went wrong, look for an earlier one"
        )
    return analysis, [reading(spike) for spike in analysis.spikes]


def as_text(path: Path, analysis: Analysis, readings: list[Reading]) -> str:
    lines = [
        f"{path}: {analysis.format}, {analysis.points} steps from {analysis.first_step} to "
        f"{analysis.last_step}, {analysis.with_grad_norm} with a gradient norm"
    ]
    lines += [f"  note: {note}" for note in notes(analysis.traps, analysis.stride, analysis.format)]
    if analysis.short:
        lines.append("  note: fewer than 64 steps: each is judged by the few before it, which is weak")
    scores = [
        f"{name} {'-' if score is None else f'{score:.3%}'}"
        for name, score in (
            ("flagged (median and MAD of 128)", analysis.flagged_share),
            ("OLMo's spike score of the loss", analysis.loss_score),
            ("of the gradient norm", analysis.grad_norm_score),
        )
    ]
    lines.append(f"  {'; '.join(scores)}")
    acting = sum(spike.acts for spike in analysis.spikes)
    lines.append(f"  {analysis.n_spikes} spikes, {acting} that call for action")
    for spike, read in zip(analysis.spikes, readings, strict=True):
        lines += ["", *_spike_lines(spike, read)]
    if analysis.n_spikes > len(analysis.spikes):
        lines.append(f"\n{analysis.n_spikes - len(analysis.spikes)} more spikes are counted only")
    return "\n".join(lines)


def _spike_lines(spike: Spike, read: Reading) -> list[str]:
    def shown(value: float | None, unit: str = "") -> str:
        return "unknown" if value is None else f"{value:.4g}{unit}"

    span = f"step {spike.first_step}"
    if spike.last_step != spike.first_step:
        span += f" to {spike.last_step}"
    led = f", the norm {spike.lead_steps} steps before the loss's peak" if spike.lead_steps else ""
    return [
        f"{span}: {spike.shape}{led}; {spike.outcome}",
        f"  loss {shown(spike.base_nats)} -> {shown(spike.peak_nats)} nats at step {spike.peak_step}, "
        f"gradient norm up to {shown(spike.peak_grad_norm)}, {spike.flagged} steps flagged",
        f"  {'ACT' if spike.acts else 'log only'}: {spike.why}",
        f"  cause: {read.family}: {read.reason}",
        *(f"  to settle it: {replay}" for replay in read.replays),
    ]


def as_json(analysis: Analysis, readings: list[Reading]) -> dict[str, Any]:
    """The same as plain JSON values."""
    content = asdict(analysis)
    spikes = [asdict(spike) | asdict(read) for spike, read in zip(analysis.spikes, readings, strict=True)]
    for spike in spikes:
        spike |= {k: None for k, v in spike.items() if isinstance(v, float) and not math.isfinite(v)}
    return content | {"traps": dict(analysis.traps), "spikes": spikes}


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m x1_pretrain.spikes.analyse",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("log", type=Path, help="CSV, JSON lines, trainer_state.json, or a printed log")
    for field in ("step", "loss", "grad-norm", "lr", "loss-scale"):
        parser.add_argument(f"--{field}", metavar="COLUMN", help=f"the column or key of the {field}")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    arguments = parser.parse_args(argv)
    names = ("step", "loss", "grad_norm", "lr", "loss_scale")
    columns = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    analysis, readings = report(arguments.log, columns)
    if arguments.json:
        print(json.dumps(as_json(analysis, readings), allow_nan=False))
    else:
        print(as_text(arguments.log, analysis, readings))


if __name__ == "__main__":
    main()
