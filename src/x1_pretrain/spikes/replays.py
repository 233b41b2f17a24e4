"""Controlled replays: change one thing, repeat the steps around a spike, see whether it returns.

Every arm starts from a saved state, so whatever differs in its outcome is due to what it changed.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from x1_pretrain.spikes.cross_evaluation import CONTROL_SD_FLOOR_NATS, OTHER_AHEAD, control_losses
from x1_pretrain.spikes.evidence import Arm, Reproduction
from x1_pretrain.spikes.lab import AS_IT_WAS, Lab, Row, State, Treatment
from x1_pretrain.spikes.monitor import robust_scale

LR_DIVISOR = 4.0
TRUSTED_ROWS = 64  # the lr that held over so many steps before the spike's replays begin
# What two replays of one thing differ by is a sample of the machine's noise; so many times that is more.
NOISE_FACTOR = 10.0
# The least that is called a difference where equal bits are not promised, nats.
UNSTABLE_FLOOR_NATS = 1e-3


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


def replay(
    lab: Lab,
    name: str,
    question: str,
    state: State,
    base_nats: float,
    steps: range,
    spike_rise_nats: float,
    number_of: Callable[[int], int] | None = None,
    treatment: Treatment = AS_IT_WAS,
) -> Replay:
    """Run one arm. It spikes if a training loss exceeds its state's control loss by that rise."""
    lab.trainer.restore(state.snapshot)
    rows, probes = [], []
    for row in lab.train(steps, number_of, treatment, watch=True):
        rows.append(row)
        probes.append(lab.probe())
    # numpy's maximum is NaN if any is; Python's may skip it
    peak = float(np.max([row.result.loss_nats for row in rows]))
    worst_probe = float(np.max(probes))
    arm = Arm(
        spikes=not peak - base_nats <= spike_rise_nats,
        peak_loss_nats=peak,
        probe_before_nats=state.probe_nats,
        probe_peak_nats=worst_probe,
    )
    return Replay(name, question, state.step, tuple(rows), tuple(probes), base_nats, arm)


def run_arms(
    lab: Lab,
    before: State,
    early: State,
    steps: range,
    spike_rise_nats: float,
    trusted_lr_scale: float,
    rare: np.ndarray | None,
) -> dict[str, Replay]:
    """The arms over the steps around the spike, by name; `masked_rare` only if rare ids [V] are given.

    The early state goes on by its own schedule and reads the suspect batches: what is done to the run at a
    later step is not done to it.
    """
    lag = before.step - early.step
    base = {
        state.step: robust_scale(control_losses(lab, state), CONTROL_SD_FLOOR_NATS)[0]
        for state in (before, early)
    }

    def arm(name: str, question: str, **changes: object) -> Replay:
        return replay(lab, name, question, before, base[before.step], steps, spike_rise_nats, **changes)

    arms = [
        arm("same", "does it happen again?"),
        arm("same_again", "and once more, in the same numbers?"),
        arm("other_batches", "is it the state alone?", number_of=lambda step: step + OTHER_AHEAD),
        replay(
            lab,
            "other_state",
            "is it the batches alone?",
            early,
            base[early.step],
            range(steps.start - lag, steps.stop - lag),
            spike_rise_nats,
            number_of=lambda step: step + lag,
        ),
        arm(
            "trusted_lr",
            "does the lr of before avoid it?",
            treatment=Treatment(lr_scale=trusted_lr_scale),
        ),
        arm("lower_lr", "does a quarter of the lr avoid it?", treatment=Treatment(lr_factor=1 / LR_DIVISOR)),
        arm("update_clip", "is one update too large for its lr?", treatment=Treatment(clip_update=True)),
    ]
    if rare is not None:
        arms.append(
            arm("masked_rare", "do rare targets alone do it?", treatment=Treatment(masked=rare)),
        )
    return {replay.name: replay for replay in arms}


def trusted_lr_scale(rows: Sequence[Row], before: State) -> float:
    """The lr that the run had before the spike, over the profile's: the median of the last 64 steps."""
    return statistics.median([row.lr_scale for row in rows if row.step <= before.step][-TRUSTED_ROWS:])


def reproduction(
    logged: Sequence[Row], same: Sequence[Row], again: Sequence[Row], bit_stable: bool
) -> Reproduction:
    """How far the run's own log and a replay of it are apart, against what two replays differ by."""
    noise = _apart(same, again)
    tolerance = NOISE_FACTOR * noise if bit_stable else max(NOISE_FACTOR * noise, UNSTABLE_FLOOR_NATS)
    difference = _apart(logged, same)
    return Reproduction(
        reproduced=difference <= tolerance,
        bit_for_bit=_bits(logged) == _bits(same) == _bits(again),
        largest_difference_nats=difference,
        tolerance_nats=tolerance,
    )


def _apart(a: Sequence[Row], b: Sequence[Row]) -> float:
    """The largest difference of two logs' losses, nats; infinite if one is not finite where the other is."""
    pairs = [(x.result.loss_nats, y.result.loss_nats) for x, y in zip(a, b, strict=True)]
    apart = [0.0 if np.isnan(x) and np.isnan(y) else abs(x - y) for x, y in pairs]
    return float(np.nan_to_num(max(apart, key=lambda d: np.inf if np.isnan(d) else d), nan=np.inf))


def _bits(rows: Sequence[Row]) -> bytes:
    numbers = [(row.step, row.result.loss_nats, row.result.grad_norm) for row in rows]
    return np.array(numbers, dtype=np.float64).tobytes()
