"""From what both sides measured to ratios, ours over the peer's. A ratio that was not measured is null."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contest.our_side import OurRun, Point
from contest.peer_side import PeerRun
from x1_pretrain.errors import UserError


@dataclass(frozen=True)
class Ratios:
    """Ours over the peer's. `seconds_ratio` has the step times that were measured in turn.

    `seconds_ratio_in_runs` has those of the training runs themselves, which were minutes apart.
    """

    seconds_ratio: float | None
    tokens_ratio: float | None
    seconds_ratio_in_runs: float | None
    reason: str


def best_of(runs: Sequence[PeerRun]) -> PeerRun:
    """The lowest final loss of the sweep. Raises `UserError` if no lr came to a finite one."""
    finite = [run for run in runs if math.isfinite(run.loss_nats)]
    if not finite:
        raise UserError(f"--lr: the peer diverged at every one of {[run.lr for run in runs]}; try lower ones")
    return min(finite, key=lambda run: run.loss_nats)


def reaching(points: Sequence[Point], target_nats: float) -> list[Point]:
    """The horizons, shortest first, whose final loss is at most the target."""
    return sorted((p for p in points if p.loss_nats <= target_nats), key=lambda p: p.steps)


def shortest(
    points: Sequence[Point], target_nats: float, train_alone: Callable[[int], OurRun]
) -> OurRun | None:
    """A run of just the shortest horizon that reaches the target; None if none does.

    A branch of a longer run can be luckier than a run of its length (with an attention window that grows
    along the run, for one), so the run is made, and the next longer one if it misses.
    """
    for point in reaching(points, target_nats):
        alone = train_alone(point.steps)
        if alone.points[-1].loss_nats <= target_nats:
            return alone
    return None


def alternate(
    first: Callable[[], float], second: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """Both measurements in turn, so that a slow spell of the machine meets both."""
    pairs = [(first(), second()) for _ in range(rounds)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def ratios(
    peer: PeerRun,
    peer_steps: int,
    peer_tokens: int,
    peer_step_s: Sequence[float],
    ours: OurRun | None,
    our_step_s: Sequence[float],
) -> Ratios:
    """Training seconds are steps x seconds of a step: no compilation, no evaluation, on either side.

    The blocks are of full steps: where a batch ramp or a short window makes our first steps cheaper,
    `seconds_ratio` errs against us, and `seconds_ratio_in_runs` does not.
    """
    if ours is None:
        return Ratios(None, None, None, f"no horizon of ours reached {peer.loss_nats:.4f} nats")
    point = ours.points[-1]
    steps = point.steps / peer_steps
    return Ratios(
        seconds_ratio=steps * statistics.median(our_step_s) / statistics.median(peer_step_s),
        tokens_ratio=point.tokens / peer_tokens,
        seconds_ratio_in_runs=steps * ours.step_s / peer.step_s,
        reason=f"our shortest horizon at or below {peer.loss_nats:.4f} nats: {point.steps} steps",
    )
