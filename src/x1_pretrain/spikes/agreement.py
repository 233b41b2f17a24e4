"""What each cause predicts of the tests that were made, and how many of them agree with it."""

from collections.abc import Mapping

from x1_pretrain.spikes.evidence import SUSPECT_DELTA, Arm, Cause, Evidence

# A test that a cause says nothing about is not counted.
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


def agreement(cause: Cause, evidence: Evidence) -> tuple[int, int]:
    """Of the tests that were made and that the cause predicts: how many agree, and how many there are."""
    predicted, seen = PREDICTIONS[cause], _observations(evidence)
    judged = [name for name in predicted if seen.get(name) is not None]
    return sum(seen[name] == predicted[name] for name in judged), len(judged)


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
