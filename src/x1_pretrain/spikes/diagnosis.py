"""From the replays' numbers to a named cause: a pure rule, so that anyone can check the verdict.

The order of the questions and the thresholds are those measured on six injections into a small
model; a cause is named only if its own arms say so, and `undetermined` is a valid answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from x1_pretrain.spikes.calibration import confidence

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
DATA_TEST_Z = 6.0
REPEATED_FRACTION = 0.25  # of a batch's windows, above what normal batches have
BENIGN_PROBE_NATS = 0.1  # damage below this is none
CLIP_CURES, CLIP_NO_HELP = 0.70, 0.40  # share of the damage that clipping the update removes
LOWER_LR_LEAVES, TRUSTED_LR_CURES = 0.20, 0.90
ACTING_UPDATE_RMS = 1.0
# Rare tokens' share of the loss over their share of the targets; less will do where a replay without them
# is calm.
RARE_LOSS_FACTOR, RARE_LOSS_FACTOR_MASKED = 3.0, 2.0
REST_WITHIN_SD = 2.0
DUPLICATE_SHARE = 0.25  # of a batch's windows, read before in the run
LR_RAISED = 1.5  # over the lr of before: an event of the schedule
WARMUP_RISES = 3  # a warm-up rises at several steps in a row, a changed setting at one


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


@dataclass(frozen=True)
class Verdict:
    """`agreeing` of `arms` tests came out as the cause predicts; `rule` says what decided.

    `confidence`: the share of right verdicts among those of the calibration with as many tests against
    them (see calibration.py); None for `undetermined`, or where none were counted.
    """

    cause: Cause
    subtype: str | None
    rule: str
    agreeing: int
    arms: int
    confidence: float | None


def diagnose(evidence: Evidence) -> Verdict:
    """The cause of a spike, by the first rule that applies."""
    if evidence.reproduced is False:
        rule = "the same state and the same batches did not give the same losses again"
        return _verdict("numeric", "not_reproducible", rule, evidence)
    if evidence.nonfinite and not _lr_was_raised_and_is_to_blame(evidence):
        rule = "a loss or gradient norm was not finite, and is not finite again in the replay"
        return _verdict("numeric", "nonfinite", rule, evidence)
    if evidence.delta_before is None or evidence.delta_early is None or evidence.same is None:
        return _verdict("undetermined", "no_replay", "there is nothing to replay from", evidence)
    before, early = evidence.delta_before, evidence.delta_early
    if before > SUSPECT_DELTA and early > SUSPECT_DELTA:
        return _data_branch(evidence)
    if before < -SUSPECT_DELTA and evidence.data.duplicate_share >= DUPLICATE_SHARE:
        rule = (
            f"the batch's loss is low before any update ({before:.1f} robust sd below controls), and "
            f"{evidence.data.duplicate_share:.0%} of its windows were read before in the run"
        )
        return _verdict("dataset_corruption", "duplicate", rule, evidence)
    return _state_branch(evidence)


def corruption_subtype(data: DataEvidence) -> str | None:
    """Which test on the tokens fires, the most specific first; None if none does."""
    if data.outside_share > 0:
        return "ids_out_of_range"
    if data.repeated_fraction - data.repeated_fraction_normal >= REPEATED_FRACTION:
        return "repeated_ngram"
    if data.unigram_kl_z > DATA_TEST_Z:
        return "foreign_tokens"
    if data.bigram_nll_z > DATA_TEST_Z:
        return "broken_order"
    if abs(data.zlib_z) > DATA_TEST_Z:
        return "compressibility"
    return None


def _data_branch(evidence: Evidence) -> Verdict:
    data = evidence.data
    where = (
        f"the batch's loss is high before any update ({evidence.delta_before:.1f} robust sd above "
        f"controls) and under early weights too ({evidence.delta_early:.1f})"
    )
    if _rare_tokens_do_it(evidence):
        masked = evidence.masked_rare
        rest = "the rest is normal" if masked is None else "without these targets it does not spike"
        rule = (
            f"{where}; rare tokens, {data.rare_target_share:.1%} of the targets, carry "
            f"{data.rare_loss_share:.1%} of the loss and {rest}"
        )
        return _verdict("rare_token", None, rule, evidence)
    subtype = corruption_subtype(data)
    if subtype is not None:
        rule = f"{where}; the test on its tokens that fires is: {subtype.replace('_', ' ')}"
        return _verdict("dataset_corruption", subtype, rule, evidence)
    if evidence.same is not None and evidence.same.excess_nats <= BENIGN_PROBE_NATS:
        rule = f"{where}, yet no test on its tokens fires and the probe loss did not suffer"
        return _verdict("benign", "hard_batch", rule, evidence)
    rule = f"{where}, but no test on its tokens says what is wrong with it"
    return _verdict("undetermined", "hard_batch", rule, evidence)


def _rare_tokens_do_it(evidence: Evidence) -> bool:
    """They hold several times their share of the loss, and the rest is normal: by a replay without them."""
    data, masked = evidence.data, evidence.masked_rare
    factor = RARE_LOSS_FACTOR if masked is None else RARE_LOSS_FACTOR_MASKED
    if not data.rare_target_share > 0 or data.rare_loss_share < factor * data.rare_target_share:
        return False
    if masked is not None:
        return not masked.spikes
    return data.rest_loss_z is not None and abs(data.rest_loss_z) <= REST_WITHIN_SD


def _lr_was_raised_and_is_to_blame(evidence: Evidence) -> bool:
    """For numbers that are not finite: the lr had been raised, and at the lr of before all stay finite."""
    trusted = evidence.trusted_lr
    return evidence.lr_highest > LR_RAISED and trusted is not None and math.isfinite(trusted.excess_nats)


def _lr_subtype(evidence: Evidence) -> str | None:
    if evidence.lr_highest <= LR_RAISED:
        return None
    return "restarted_warmup" if evidence.lr_rises >= WARMUP_RISES else "raised"


def _removed(arm: Arm, same: Arm) -> float:
    """The share of the damage that an arm removes."""
    if math.isinf(same.excess_nats):
        return 0.0 if math.isinf(arm.excess_nats) else 1.0
    return 1 - arm.excess_nats / same.excess_nats


def _state_branch(evidence: Evidence) -> Verdict:
    same, other = evidence.same, evidence.other_batches
    where = "the batch looks normal to weights that were not updated on it"
    if same is None or other is None:
        return _verdict("undetermined", "missing_arm", f"{where}; an arm is missing", evidence)
    if same.excess_nats <= BENIGN_PROBE_NATS:
        rule = f"{where} and the probe loss rose by {same.excess_nats:.2f} nats only"
        return _verdict("benign", "no_damage", rule, evidence)
    clip = evidence.update_clip
    stale = evidence.update_rms is not None and evidence.update_rms >= ACTING_UPDATE_RMS
    if stale and clip is not None and _removed(clip, same) >= CLIP_CURES:
        rule = (
            f"{where}; an update had an RMS of {evidence.update_rms:.1f} times its lr, and clipping the "
            f"update removes {_removed(clip, same):.0%} of the damage"
        )
        return _verdict("adam_second_moment", None, rule, evidence)
    if not other.spikes and other.excess_nats < same.excess_nats / 2:
        rule = f"{where}, and other batches from the same state do not spike"
        return _verdict("interaction", None, rule, evidence)
    raised = evidence.lr_highest > LR_RAISED
    trusted = evidence.trusted_lr if raised else evidence.lower_lr
    if clip is None or trusted is None:
        rule = f"{where} and other batches spike too; the deciding arms were not run"
        return _verdict("undetermined", "missing_arm", rule, evidence)
    clip_removes, trusted_removes = _removed(clip, same), _removed(trusted, same)
    lower_leaves = 1 - _removed(evidence.lower_lr or trusted, same)
    numbers = (
        f"{where} and other batches spike too; clipping the update removes {clip_removes:.0%} of "
        f"the damage, {'the lr of before' if raised else 'a quarter of the lr'} {trusted_removes:.0%}"
    )
    if clip_removes >= CLIP_CURES and lower_leaves >= LOWER_LR_LEAVES:
        return _verdict("adam_second_moment", None, numbers, evidence)
    if clip_removes < CLIP_NO_HELP and trusted_removes >= TRUSTED_LR_CURES:
        return _verdict("lr_too_high", _lr_subtype(evidence), numbers, evidence)
    return _verdict("undetermined", "arms_disagree", numbers, evidence)


def _verdict(cause: Cause, subtype: str | None, rule: str, evidence: Evidence) -> Verdict:
    """Count, among the arms that were run, those that came out as the cause predicts."""
    predicted = PREDICTIONS[cause]
    seen = _observations(evidence)
    judged = [name for name in predicted if seen.get(name) is not None]
    agreeing = sum(seen[name] == predicted[name] for name in judged)
    return Verdict(cause, subtype, rule, agreeing, len(judged), confidence(cause, len(judged) - agreeing))


def _observations(evidence: Evidence) -> dict[str, bool | None]:
    def spikes(arm: Arm | None) -> bool | None:
        return None if arm is None else arm.spikes

    def high(delta: float | None) -> bool | None:
        return None if delta is None else delta > SUSPECT_DELTA

    return {
        "reproduced": evidence.reproduced,
        "same": spikes(evidence.same),
        "other_batches": spikes(evidence.other_batches),
        "other_state": spikes(evidence.other_state),
        "lower_lr": spikes(evidence.lower_lr),
        "trusted_lr": spikes(evidence.trusted_lr),
        "masked_rare": spikes(evidence.masked_rare),
        "update_clip": spikes(evidence.update_clip),
        "high_before": high(evidence.delta_before),
        "high_early": high(evidence.delta_early),
    }


# What each cause predicts of the tests; a test it says nothing about is not counted.
_BAD_BATCH = {
    "reproduced": True,
    "same": True,
    "other_batches": False,
    "other_state": True,
    "lower_lr": True,
    "high_before": True,
    "high_early": True,
}
_BAD_STATE = {
    "reproduced": True,
    "same": True,
    "other_batches": True,
    "other_state": False,
    "high_before": False,
}
PREDICTIONS: Mapping[Cause, Mapping[str, bool]] = {
    "dataset_corruption": _BAD_BATCH,
    "rare_token": {**_BAD_BATCH, "masked_rare": False},
    "adam_second_moment": {**_BAD_STATE, "update_clip": False},
    "lr_too_high": {**_BAD_STATE, "trusted_lr": False, "update_clip": True},
    "interaction": {"reproduced": True, "same": True, "other_batches": False, "other_state": False},
    "numeric": {},
    "benign": {"reproduced": True, "other_batches": False},
    "undetermined": {},
}
