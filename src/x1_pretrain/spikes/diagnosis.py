"""From the replays' numbers to a named cause: a pure rule, so that anyone can check the verdict.

The order of the questions and the thresholds are those measured on six injections into a small
model; a cause is named only if its own arms say so, and `undetermined` is a valid answer.
"""

import math
from dataclasses import dataclass

from x1_pretrain.spikes.agreement import agreement
from x1_pretrain.spikes.calibration import confidence
from x1_pretrain.spikes.evidence import SUSPECT_DELTA, Arm, Cause, DataEvidence, Evidence

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
    agreeing, judged = agreement(cause, evidence)
    return Verdict(cause, subtype, rule, agreeing, judged, confidence(cause, judged - agreeing))
