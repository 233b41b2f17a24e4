"""Controlled replays: change one thing, repeat the steps around a spike, see whether it returns.

Every arm starts from a saved state, so whatever differs in its outcome is due to what it changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from x1_pretrain.spikes.diagnosis import SUSPECT_DELTA, Arm
from x1_pretrain.spikes.lab import Lab, Row, State
from x1_pretrain.spikes.monitor import robust_scale

# Batches that nobody trains on: controls, "other batches" and normal batches lie this far ahead.
CONTROLS_AHEAD, OTHER_AHEAD, NORMAL_AHEAD = 100_000, 200_000, 300_000
CONTROLS = 8
LR_DIVISOR = 4.0
# Spread of the control batches' loss below which a difference is not news, nats.
CONTROL_SD_FLOOR_NATS = 0.02


@dataclass(frozen=True)
class Replay:
    """One arm: what it changed, its log, the probe after each step, and the judgement."""

    name: str
    question: str
    state_step: int
    rows: tuple[Row, ...]
    probes_nats: tuple[float, ...]
    base_nats: float
    arm: Arm


@dataclass(frozen=True)
class Suspect:
    """A batch's loss in nats, forward only, on two states; deltas in robust sd over controls."""

    batch: int
    loss_before_nats: float
    delta_before: float
    loss_early_nats: float
    delta_early: float


@dataclass(frozen=True)
class CrossEvaluation:
    """Suspect batches against control batches, without any update, before the spike and early."""

    before_step: int
    early_step: int
    control_median_before_nats: float
    control_sd_before_nats: float
    control_median_early_nats: float
    control_sd_early_nats: float
    suspects: tuple[Suspect, ...]
    offending: tuple[int, int] | None  # first and last batch that stand out on both states

    @property
    def worst(self) -> Suspect:
        return max(self.suspects, key=lambda suspect: suspect.delta_before)


def control_losses(lab: Lab, state: State) -> list[float]:
    """Loss of the control batches on a state, in nats; leaves the trainer in that state."""
    lab.trainer.restore(state.snapshot)
    numbers = range(CONTROLS_AHEAD, CONTROLS_AHEAD + CONTROLS)
    return [lab.trainer.loss(lab.stream.batch(number)) for number in numbers]


def cross_evaluate(
    lab: Lab, before: State, early: State, numbers: Sequence[int], min_rise_nats: float
) -> CrossEvaluation:
    """Loss of each suspect batch on both states, and the range that stands out on both.

    The decisive test, and the cheapest: a bad batch is already bad on weights that never saw it.
    """
    columns = []
    for state in (before, early):
        median, sd = robust_scale(control_losses(lab, state), CONTROL_SD_FLOOR_NATS)
        losses = [lab.trainer.loss(lab.stream.batch(number)) for number in numbers]
        columns.append((median, sd, losses, [(loss - median) / sd for loss in losses]))
    (median_before, sd_before, losses_before, deltas_before) = columns[0]
    (median_early, sd_early, losses_early, deltas_early) = columns[1]
    suspects = tuple(map(Suspect, numbers, losses_before, deltas_before, losses_early, deltas_early))
    standing_out = [
        suspect.batch
        for suspect in suspects
        if min(suspect.delta_before, suspect.delta_early) > SUSPECT_DELTA
        and suspect.loss_before_nats - median_before > min_rise_nats
    ]
    return CrossEvaluation(
        before_step=before.step,
        early_step=early.step,
        control_median_before_nats=median_before,
        control_sd_before_nats=sd_before,
        control_median_early_nats=median_early,
        control_sd_early_nats=sd_early,
        suspects=suspects,
        offending=(min(standing_out), max(standing_out)) if standing_out else None,
    )


def replay(
    lab: Lab,
    name: str,
    question: str,
    state: State,
    steps: range,
    spike_rise_nats: float,
    number_of: Callable[[int], int] | None = None,
    lr_factor: float = 1.0,
    clip_update: bool = False,
) -> Replay:
    """Run one arm. It spikes if a training loss exceeds its state's control loss by that rise."""
    base = robust_scale(control_losses(lab, state), CONTROL_SD_FLOOR_NATS)[0]
    lab.trainer.restore(state.snapshot)
    rows, probes = [], []
    for row in lab.train(steps, number_of, lr_factor, watch=True, clip_update=clip_update):
        rows.append(row)
        probes.append(lab.probe())
    # numpy's maximum is NaN if any is; Python's may skip it
    peak = float(np.max([row.result.loss_nats for row in rows]))
    worst_probe = float(np.max(probes))
    arm = Arm(
        spikes=not peak - base <= spike_rise_nats,
        peak_loss_nats=peak,
        probe_before_nats=state.probe_nats,
        probe_peak_nats=worst_probe,
    )
    return Replay(name, question, state.step, tuple(rows), tuple(probes), base, arm)


def run_arms(
    lab: Lab, before: State, early: State, steps: range, spike_rise_nats: float
) -> dict[str, Replay]:
    """The five arms over the steps around the spike, by name."""

    def other(step: int) -> int:
        return step + OTHER_AHEAD

    def arm(name: str, question: str, state: State, **changes: object) -> Replay:
        return replay(lab, name, question, state, steps, spike_rise_nats, **changes)

    arms = [
        arm("same", "does it happen again?", before),
        arm("other_batches", "is it the state alone?", before, number_of=other),
        arm("other_state", "is it the batches alone?", early),
        arm("lower_lr", "does a quarter of the lr avoid it?", before, lr_factor=1 / LR_DIVISOR),
        arm("update_clip", "is one update too large for its lr?", before, clip_update=True),
    ]
    return {replay.name: replay for replay in arms}


def reproduces(logged: Sequence[Row], replayed: Sequence[Row]) -> bool:
    """Do two logs agree bit for bit in loss and gradient norm, step by step?"""

    def bits(rows: Sequence[Row]) -> bytes:
        numbers = [(row.step, row.result.loss_nats, row.result.grad_norm) for row in rows]
        return np.array(numbers, dtype=np.float64).tobytes()

    return bits(logged) == bits(replayed)
