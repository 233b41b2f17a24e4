"""Injections: deterministic, in range, and spoiling in the way the name says."""

import typing

import numpy as np
import pytest

from tests.conftest import RECIPE, TRAIN
from x1_pretrain.errors import UserError
from x1_pretrain.spikes.agreement import PREDICTIONS
from x1_pretrain.spikes.data_tests import is_repetitive
from x1_pretrain.spikes.injections import KINDS, LR_FACTOR, RARE_POSITIONS, Injection
from x1_pretrain.study import SpikeChoice

BATCH = np.random.default_rng(7).integers(0, 50, size=(6, 65), dtype=np.int64)
ON_BATCHES = [name for name, kind in KINDS.items() if kind.on == "batch"]
RARE_IDS = tuple(range(90, 98))


def injection(kind: str, seed: int = 0) -> Injection:
    return Injection(kind, first=5, last=7, n_vocab=100, seed=seed, rare_ids=RARE_IDS)


def test_params_offer_every_kind():
    hint = typing.get_type_hints(SpikeChoice)["injection"]
    assert typing.get_args(hint) == tuple(KINDS)
    assert {kind.cause for kind in KINDS.values()} <= set(PREDICTIONS)


@pytest.mark.parametrize("name", ON_BATCHES)
@pytest.mark.parametrize("dtype", [np.int64, np.uint16])
def test_same_seed_and_step_give_the_same_batch(name, dtype):
    batch = BATCH.astype(dtype)
    before = batch.copy()
    spoiled = injection(name).spoil(batch, 5)
    assert np.array_equal(spoiled, injection(name).spoil(batch, 5))
    assert np.array_equal(batch, before)
    assert spoiled.shape == batch.shape and spoiled.dtype == dtype
    assert 0 <= spoiled.min() <= spoiled.max() < 100
    assert not np.array_equal(spoiled, batch)
    assert not np.array_equal(spoiled, injection(name).spoil(batch, 6))
    assert not np.array_equal(spoiled, injection(name, seed=1).spoil(batch, 5))


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_done_outside_its_range_nor_to_the_control(name):
    for made, steps in ((injection(name), (1, 4)), (injection(name).never(), (1, 5, 7, 1000))):
        for step in steps:
            assert made.spoil(BATCH, step) is BATCH
            assert made.lr_factor(step) == 1.0 and made.fault(step, live=True) is None
    if KINDS[name].on != "batch":
        assert injection(name).spoil(BATCH, 5) is BATCH


def test_shuffle_keeps_each_windows_tokens_and_repeat_repeats():
    assert np.array_equal(np.sort(injection("shuffle").spoil(BATCH, 5), axis=1), np.sort(BATCH, axis=1))
    assert all(is_repetitive(window) for window in injection("repeat").spoil(BATCH, 5))


def test_rare_puts_rare_ids_in_a_share_of_the_places():
    big = np.zeros((100, 100), dtype=np.int64)
    spoiled = injection("rare").spoil(big, 5)
    assert set(np.unique(spoiled)) == {0, *RARE_IDS}
    assert (spoiled != 0).mean() == pytest.approx(RARE_POSITIONS, abs=0.01)


def test_schedules_stay_changed_and_a_warm_up_climbs():
    assert [injection("lr").lr_factor(step) for step in (4, 5, 50)] == [1.0, LR_FACTOR, LR_FACTOR]
    climb = [injection("rewarm").lr_factor(step) for step in range(5, 20)]
    assert climb == sorted(climb) and climb[0] < climb[5] < climb[-1] == LR_FACTOR


def test_a_grown_moment_has_small_gradients_before_and_in_the_control_always():
    made = injection("stale_moment_grown")
    assert [made.gradient_scale(step) for step in (1, 4, 5)] == [0.01, 0.01, 1.0]
    assert made.never().gradient_scale(1000) == 0.01


def test_a_machines_fault_does_not_come_back():
    for name in ("bit_flip", "nan_gradient"):
        assert injection(name).fault(5, live=True) == name
        assert injection(name).fault(5, live=False) is None
    assert injection("stale_moment").fault(5, live=False) == "stale_moment"
    assert injection("stale_moment").fault(6, live=True) is None


def test_a_stale_moment_is_adamws_and_other_runs_are_the_studys_own():
    assert injection("lr").settings(TRAIN, RECIPE) == (TRAIN, RECIPE)
    train, recipe = injection("stale_moment").settings(TRAIN, RECIPE)
    assert (train.beta2, recipe.optimizer) == (0.999, "adamw")


def test_unknown_kinds_and_missing_rare_ids_are_refused():
    with pytest.raises(UserError, match="'typo' is unknown; valid ones are garbage, shuffle"):
        Injection("typo", 1, 2, 100, 0)
    with pytest.raises(UserError, match="rare needs tokens"):
        Injection("rare", 1, 2, 100, 0)
