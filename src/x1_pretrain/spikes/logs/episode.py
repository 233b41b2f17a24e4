"""One spike in a log: its shape, how it ended, and whether to act, by public evidence."""

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from x1_pretrain.spikes.logs.points import Point

Shape = Literal["grad-norm-led", "instantaneous", "gradual", "grad-norm-only", "downward", "not-finite"]
Outcome = Literal["transparent", "self-recovering", "new-level", "fatal", "unfinished"]

CALM_POINTS = 10  # unflagged points in a row that end a spike; their losses say what it left
# What is left counts as damage above this, and above the noise of the log: on 1,496 outliers of public
# modded-nanogpt runs, none of which did harm, the next ten losses rose by up to 2.99 robust sd.
DAMAGE_NATS, DAMAGE_SD = 0.1, 3.0
ACT_FLAGS, ACT_WITHIN = 3, 5  # so many flagged points of so many are more than an outlier
TRANSPARENT_FLAGS = 2
LR_RISE = 1.5  # times the lr of before: an event of the schedule
EVENT_WITHIN_STEPS = 50


@dataclass(frozen=True)
class Spike:
    """One spike: steps, losses (nats) and norms; `lead_steps` is from the norm's first alarm to the peak."""

    first_step: int
    last_step: int
    flagged: int
    base_nats: float | None
    peak_nats: float | None
    peak_step: int
    peak_grad_norm: float | None
    lead_steps: int
    shape: Shape
    outcome: Outcome
    left_nats: float | None  # median loss of the ten calm points after it, above the base
    acts: bool
    why: str  # what decided whether to act
    events: tuple[str, ...]


@dataclass
class Episode:
    """A spike that has begun and has not yet calmed down."""

    base: float | None
    sd: float
    events: tuple[str, ...]
    flagged: int = 0
    first_of: dict[str, int] = field(default_factory=dict)
    last_step: int = 0
    peak: Point | None = None
    peak_index: int = 0
    first_loss_index: int | None = None
    peak_norm: float | None = None
    densest: int = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=ACT_FLAGS))
    calm: list[float] = field(default_factory=list)
    level_accepted: bool = False


def lasting_rise(left_nats: float, sd_nats: float) -> bool:
    """Whether what a spike left behind is more than the log's noise."""
    return not left_nats <= max(DAMAGE_NATS, DAMAGE_SD * sd_nats)


def describe(episode: Episode, ended: bool) -> Spike:
    first = episode.first_of
    norm_first = first.get("grad_norm")
    loss_first = min((step for reason, step in first.items() if reason != "grad_norm"), default=None)
    peak_step = episode.peak.step if episode.peak is not None else episode.last_step
    led = norm_first is not None and loss_first is not None and norm_first < loss_first
    left = None
    if episode.calm and episode.base is not None:
        left = statistics.median(episode.calm) - episode.base
    lasting = left is not None and lasting_rise(left, episode.sd)
    outcome = _outcome(episode, left, lasting, ended)
    acts, why = _action(episode, left, lasting, outcome)
    return Spike(
        first_step=min(first.values()),
        last_step=episode.last_step,
        flagged=episode.flagged,
        base_nats=episode.base,
        peak_nats=episode.peak.loss if episode.peak is not None else None,
        peak_step=peak_step,
        peak_grad_norm=episode.peak_norm,
        lead_steps=max(0, peak_step - norm_first) if led else 0,
        shape=_shape(episode, led),
        outcome=outcome,
        left_nats=left,
        acts=acts,
        why=why,
        events=episode.events,
    )


def _shape(episode: Episode, led: bool) -> Shape:
    reasons = set(episode.first_of)
    if "nonfinite" in reasons:
        return "not-finite"
    if reasons == {"grad_norm"}:
        return "grad-norm-only"
    if "loss" not in reasons:
        return "downward"
    if led:
        return "grad-norm-led"
    return "instantaneous" if episode.peak_index - (episode.first_loss_index or 0) <= 1 else "gradual"


def _outcome(episode: Episode, left: float | None, lasting: bool, ended: bool) -> Outcome:
    if not episode.calm:  # flagged up to the end of the log
        return "fatal" if episode.flagged >= ACT_FLAGS else "unfinished"
    if lasting or episode.level_accepted:
        return "new-level"
    if left is None or (ended and episode.densest and len(episode.calm) < 2):
        return "unfinished"
    return "transparent" if episode.flagged <= TRANSPARENT_FLAGS else "self-recovering"


def _action(episode: Episode, left: float | None, lasting: bool, outcome: Outcome) -> tuple[bool, str]:
    """An alarm is not an action: what the weights show afterwards decides."""
    if "nonfinite" in episode.first_of:
        return True, "a number is not finite"
    if lasting:
        return True, f"the losses after it stay {left:.2f} nats up"
    if episode.densest and outcome != "transparent":
        return True, f"{ACT_FLAGS} of {ACT_WITHIN} steps were flagged"
    if left is None:
        return False, "there are no steps after it to judge it by"
    return False, f"the losses after it are back ({left:+.2f} nats): no harm was done"
