"""What the rule looks at: one replay's numbers, the tests on the tokens, all of it together."""

import math
from dataclasses import dataclass, field
from typing import Literal

Cause = Literal[
    "dataset_corruption",
    "rare_token",
    "adam_second_moment",
    "lr_too_high",
    "interaction",
    "numeric",
    "benign",
    "undetermined",
]

SUSPECT_DELTA = 6.0  # robust sd above the control batches, forward only


@dataclass(frozen=True)
class Arm:
    """One replay. Losses in nats; the probe is the mean loss on fixed held-out batches."""

    spikes: bool
    peak_loss_nats: float
    probe_before_nats: float
    probe_peak_nats: float

    @property
    def excess_nats(self) -> float:
        """Damage to the weights; infinite if the probe was not finite."""
        excess = self.probe_peak_nats - self.probe_before_nats
        return math.inf if math.isnan(excess) else max(excess, 0.0)


@dataclass(frozen=True)
class Reproduction:
    """Whether a replay gave the run's numbers again, within what two replays differ by."""

    reproduced: bool
    bit_for_bit: bool
    largest_difference_nats: float
    tolerance_nats: float


@dataclass(frozen=True)
class DataEvidence:
    """Tests on the tokens of the worst suspect batch; z in robust sd of normal batches."""

    unigram_kl_z: float = 0.0
    bigram_nll_z: float = 0.0
    zlib_z: float = 0.0
    repeated_fraction: float = 0.0
    repeated_fraction_normal: float = 0.0
    rare_target_share: float = 0.0
    rare_loss_share: float = 0.0
    rest_loss_z: float | None = None  # loss on the tokens that are not rare, against controls
    outside_share: float = 0.0  # ids that the vocabulary does not have
    duplicate_share: float = 0.0  # windows that the run read before


@dataclass(frozen=True)
class Evidence:
    """All that the rule looks at. None: that arm was not run, and counts for nothing.

    `delta_before` and `delta_early`: the worst suspect batch's loss in robust sd above the control
    batches, on the weights just before the spike and on much earlier ones, without any update.
    `lr_highest`: of the steps around the spike, over the lr of before; `lr_rises`: steps at which it rose.
    """

    nonfinite: bool
    reproduced: bool | None
    delta_before: float | None
    delta_early: float | None
    lr_highest: float = 1.0
    lr_rises: int = 0
    same: Arm | None = None
    other_batches: Arm | None = None
    other_state: Arm | None = None
    lower_lr: Arm | None = None
    trusted_lr: Arm | None = None
    update_clip: Arm | None = None
    masked_rare: Arm | None = None
    update_rms: float | None = None
    data: DataEvidence = field(default_factory=DataEvidence)
