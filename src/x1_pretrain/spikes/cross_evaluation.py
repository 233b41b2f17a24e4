"""Suspect batches on weights that never saw them: the decisive test for data, and the cheapest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from x1_pretrain.spikes.evidence import SUSPECT_DELTA
from x1_pretrain.spikes.lab import Lab, State
from x1_pretrain.spikes.monitor import robust_scale

# Batches that nobody trains on: controls, "other batches" and normal batches lie this far ahead.
CONTROLS_AHEAD, OTHER_AHEAD, NORMAL_AHEAD = 100_000, 200_000, 300_000
CONTROLS = 16
# Spread of the control batches' loss below which a difference is not news, nats.
CONTROL_SD_FLOOR_NATS = 0.02
# A neighbour of a batch that stands out belongs to the range above this. With rare tokens in them the batches
# of three seeds (50 to 52) had 3.9 to 12, sound ones at most 1.3.
NEIGHBOUR_DELTA = 3.0


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
    offending: tuple[int, int] | None  # first and last batch that stand out on both states, see below

    @property
    def worst(self) -> Suspect:
        """The batch that stands out most: upwards, or downwards if none does upwards."""
        highest = max(self.suspects, key=lambda suspect: suspect.delta_before)
        lowest = min(self.suspects, key=lambda suspect: suspect.delta_before)
        return lowest if highest.delta_before <= SUSPECT_DELTA < -lowest.delta_before else highest


def control_losses(lab: Lab, state: State) -> list[float]:
    """Loss of the control batches on a state, in nats; leaves the trainer in that state."""
    lab.trainer.restore(state.snapshot)
    numbers = range(CONTROLS_AHEAD, CONTROLS_AHEAD + CONTROLS)
    return [lab.trainer.loss(lab.stream.batch(number)) for number in numbers]


def cross_evaluate(
    lab: Lab, before: State, early: State, numbers: Sequence[int], min_rise_nats: float
) -> CrossEvaluation:
    """Loss of each suspect batch on both states, and the range that stands out on both.

    A bad batch is already bad on weights that never saw it. Batches spoiled together are not equally bad, so
    next to one that stands out by `SUSPECT_DELTA` half of that is enough.
    """
    columns = []
    for state in (before, early):
        median, sd = robust_scale(control_losses(lab, state), CONTROL_SD_FLOOR_NATS)
        losses = [lab.trainer.loss(lab.stream.batch(number)) for number in numbers]
        columns.append((median, sd, losses, [(loss - median) / sd for loss in losses]))
    (median_before, sd_before, losses_before, deltas_before) = columns[0]
    (median_early, sd_early, losses_early, deltas_early) = columns[1]
    suspects = tuple(map(Suspect, numbers, losses_before, deltas_before, losses_early, deltas_early))
    raised = {
        suspect.batch: min(suspect.delta_before, suspect.delta_early)
        for suspect in suspects
        if suspect.loss_before_nats - median_before > min_rise_nats
    }
    return CrossEvaluation(
        before_step=before.step,
        early_step=early.step,
        control_median_before_nats=median_before,
        control_sd_before_nats=sd_before,
        control_median_early_nats=median_early,
        control_sd_early_nats=sd_early,
        suspects=suspects,
        offending=offending_range(raised),
    )


def offending_range(deltas: Mapping[int, float]) -> tuple[int, int] | None:
    """First and last batch of those that stand out, with the neighbours that do so less; None if none does.

    `deltas`: of each batch whose loss is raised, the lesser of its two.
    """
    standing_out = [batch for batch, delta in deltas.items() if delta > SUSPECT_DELTA]
    if not standing_out:
        return None
    first, last = min(standing_out), max(standing_out)
    while deltas.get(first - 1, 0.0) > NEIGHBOUR_DELTA:
        first -= 1
    while deltas.get(last + 1, 0.0) > NEIGHBOUR_DELTA:
        last += 1
    return first, last
