"""The rule, on evidence made by hand: the measured table of six injections, and its edge cases."""

import dataclasses
import math

import pytest

from x1_pretrain.spikes import calibration
from x1_pretrain.spikes.diagnosis import diagnose
from x1_pretrain.spikes.evidence import Arm, DataEvidence, Evidence

BASE = 2.42  # nats: loss and probe before the incident, in a byte model of 388,416 parameters


def arm(peak: float, probe: float = BASE) -> Arm:
    """An arm spikes if its peak is 0.3 nats above the base, as in the lab."""
    return Arm(peak - BASE > 0.3, peak, BASE, probe)


CLEAN = dict(nonfinite=False, reproduced=True, delta_before=0.4, delta_early=0.6)
BAD_BATCH = dict(nonfinite=False, reproduced=True, other_batches=arm(2.51))
GARBAGE = Evidence(
    **BAD_BATCH,
    delta_before=150.0,
    delta_early=140.0,
    same=arm(10.12, 3.16),
    other_state=arm(10.27),
    lower_lr=arm(10.29, 2.65),
    data=DataEvidence(
        unigram_kl_z=60, bigram_nll_z=115, rare_target_share=0.62, rare_loss_share=0.65,
        rest_loss_z=90.0,
    ),
)  # fmt: skip
SHUFFLE = Evidence(
    **BAD_BATCH,
    delta_before=25.0,
    delta_early=22.0,
    same=arm(3.89, 2.75),
    other_state=arm(3.79),
    lower_lr=arm(3.89, 2.53),
    data=DataEvidence(unigram_kl_z=0.1, bigram_nll_z=17.0, zlib_z=7.0, rest_loss_z=24.0),
)
REPEAT = Evidence(
    **BAD_BATCH,
    delta_before=60.0,
    delta_early=50.0,
    same=arm(5.85, 2.89),
    other_state=arm(6.41),
    lower_lr=arm(5.85, 2.54),
    data=DataEvidence(repeated_fraction=1.0, zlib_z=-40, unigram_kl_z=30, rest_loss_z=50.0),
)
RARE = Evidence(
    **BAD_BATCH,
    delta_before=17.0,
    delta_early=15.0,
    same=arm(3.52, 2.49),
    other_state=arm(3.48),
    lower_lr=arm(3.55, 2.46),
    data=DataEvidence(unigram_kl_z=9, rare_target_share=0.089, rare_loss_share=0.33, rest_loss_z=1.1),
)
STALE_MILD = Evidence(
    **CLEAN,
    same=arm(2.90, 2.83),
    other_batches=arm(2.89, 2.80),
    other_state=arm(2.61),
    lower_lr=arm(2.68, 2.55),
    update_clip=arm(2.60, 2.46),
    update_rms=1.39,
)
STALE_STRONG = Evidence(
    **CLEAN,
    same=arm(3.82, 3.86),
    other_batches=arm(4.26, 4.48),
    other_state=arm(2.61),
    lower_lr=arm(3.07, 3.05),
    update_clip=arm(2.65, 2.52),
    update_rms=10.7,
)
LR = Evidence(
    **CLEAN,
    same=arm(4.21, 4.21),
    other_batches=arm(3.52, 3.49),
    other_state=arm(2.61),
    lower_lr=arm(3.07, 3.06),
    trusted_lr=arm(2.57),
    update_clip=arm(3.92, 3.92),
    update_rms=0.34,
    lr_highest=15.0,
    lr_rises=1,
)


@pytest.mark.parametrize(
    ("evidence", "cause", "subtype"),
    [
        (GARBAGE, "dataset_corruption", "foreign_tokens"),
        (SHUFFLE, "dataset_corruption", "broken_order"),
        (REPEAT, "dataset_corruption", "repeated_ngram"),
        (RARE, "rare_token", None),
        (STALE_MILD, "adam_second_moment", None),
        (STALE_STRONG, "adam_second_moment", None),
        (LR, "lr_too_high", "raised"),
    ],
)
def test_measured_injections_get_their_own_name(evidence, cause, subtype):
    verdict = diagnose(evidence)
    assert (verdict.cause, verdict.subtype) == (cause, subtype)
    assert verdict.rule
    assert verdict.arms >= 5 and verdict.agreeing == verdict.arms


def test_numbers_that_are_not_finite_again_are_numeric_unless_the_lr_is_to_blame():
    verdict = diagnose(dataclasses.replace(GARBAGE, nonfinite=True))
    assert (verdict.cause, verdict.subtype) == ("numeric", "nonfinite")
    nan = arm(math.nan, math.nan)
    blown = dataclasses.replace(
        LR, nonfinite=True, same=nan, other_batches=nan, update_clip=nan, lower_lr=nan
    )
    assert diagnose(blown).cause == "lr_too_high"
    assert diagnose(dataclasses.replace(blown, lr_highest=1.0)).subtype == "nonfinite"
    assert diagnose(dataclasses.replace(blown, reproduced=False)).subtype == "not_reproducible"


def test_a_mild_stale_moment_is_told_by_its_updates():
    """Its loss may not spike on other batches, but no healthy second moment makes such an update."""
    mild = dataclasses.replace(STALE_MILD, same=arm(2.7, 2.60), other_batches=arm(2.6, 2.46))
    assert diagnose(mild).cause == "adam_second_moment"
    assert diagnose(dataclasses.replace(mild, update_rms=0.5)).cause == "interaction"


def test_a_lr_that_climbs_is_a_restarted_warm_up():
    assert diagnose(dataclasses.replace(LR, lr_rises=8)).subtype == "restarted_warmup"


def test_ids_out_of_range_and_duplicates_are_corruption():
    outside = dataclasses.replace(GARBAGE, data=DataEvidence(outside_share=0.01, rest_loss_z=50.0))
    assert diagnose(outside).subtype == "ids_out_of_range"
    again = dataclasses.replace(GARBAGE, delta_before=-9.0, data=DataEvidence(duplicate_share=1.0))
    assert (diagnose(again).cause, diagnose(again).subtype) == ("dataset_corruption", "duplicate")
    assert diagnose(dataclasses.replace(again, data=DataEvidence())).cause != "dataset_corruption"


def test_rare_tokens_are_named_only_if_a_replay_without_them_is_calm():
    far = dataclasses.replace(RARE, data=dataclasses.replace(RARE.data, rest_loss_z=4.0))
    assert diagnose(dataclasses.replace(far, masked_rare=arm(2.6))).cause == "rare_token"
    assert diagnose(dataclasses.replace(RARE, masked_rare=arm(3.4))).cause == "dataset_corruption"


def test_confidence_is_counted_and_undetermined_has_none(monkeypatch):
    monkeypatch.setattr(calibration, "RIGHT_OF", {0: (97, 98), 2: (1, 6)})
    assert diagnose(GARBAGE).confidence == 98 / 100
    assert calibration.confidence("benign", 1) is None
    assert diagnose(dataclasses.replace(LR, update_clip=None)).confidence is None
    assert calibration.confidence("benign", 7) == calibration.confidence("benign", 2) == 2 / 8


def test_a_run_that_does_not_reproduce_is_not_explained_by_data():
    verdict = diagnose(dataclasses.replace(GARBAGE, reproduced=False))
    assert (verdict.cause, verdict.subtype) == ("numeric", "not_reproducible")


def test_bad_only_in_one_state_and_only_with_these_batches_is_an_interaction():
    evidence = Evidence(**CLEAN, same=arm(4.0, 3.0), other_batches=arm(2.5), other_state=arm(2.5))
    verdict = diagnose(evidence)
    assert verdict.cause == "interaction" and verdict.agreeing == verdict.arms == 4


def test_no_damage_and_no_bad_token_is_benign():
    hard = dataclasses.replace(SHUFFLE, data=DataEvidence(), same=arm(3.9, 2.45))
    assert diagnose(hard).cause == "benign"
    assert diagnose(Evidence(**CLEAN, same=arm(2.9, 2.44), other_batches=arm(2.5))).cause == "benign"


def test_unexplained_damage_is_undetermined():
    hard = dataclasses.replace(SHUFFLE, data=DataEvidence())
    assert (diagnose(hard).cause, diagnose(hard).subtype) == ("undetermined", "hard_batch")
    halfway = dataclasses.replace(LR, update_clip=arm(3.2, 3.2))
    assert (diagnose(halfway).cause, diagnose(halfway).subtype) == ("undetermined", "arms_disagree")


def test_missing_arms_are_never_guessed():
    assert diagnose(dataclasses.replace(LR, update_clip=None)).cause == "undetermined"
    assert diagnose(dataclasses.replace(LR, other_batches=None)).cause == "undetermined"
    nothing = Evidence(nonfinite=False, reproduced=None, delta_before=None, delta_early=None)
    assert (diagnose(nothing).cause, diagnose(nothing).subtype) == ("undetermined", "no_replay")


def test_disagreeing_arm_lowers_the_count_only():
    verdict = diagnose(dataclasses.replace(GARBAGE, other_state=arm(2.5)))
    assert verdict.cause == "dataset_corruption"
    assert verdict.agreeing == verdict.arms - 1


@pytest.mark.parametrize(("factor", "cause"), [(2.9, "undetermined"), (3.0, "rare_token")])
def test_rare_tokens_must_hold_three_times_their_share(factor, cause):
    data = DataEvidence(rare_target_share=0.1, rare_loss_share=0.1 * factor, rest_loss_z=0.0)
    damaged = dataclasses.replace(RARE, same=arm(3.5, 2.9), data=data)
    assert diagnose(damaged).cause == cause
