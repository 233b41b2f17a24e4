"""Spoiled batches: deterministic, in range, and spoiled in the way the name says."""

import numpy as np
import pytest

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.data_tests import is_repetitive
from x1_pretrain.spikes.injections import spoil

BATCH = np.random.default_rng(7).integers(0, 50, size=(6, 65), dtype=np.int64)
NAMES = ["garbage", "shuffle", "repeat"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.int64, np.uint16])
def test_same_seed_and_step_give_the_same_batch(name, dtype):
    batch = BATCH.astype(dtype)
    original = batch.copy()
    spoiled = spoil(batch, name, n_vocab=50, seed=3, step=11)
    assert np.array_equal(batch, original)
    assert spoiled.shape == batch.shape and spoiled.dtype == dtype
    assert spoiled.min() >= 0 and spoiled.max() < 50
    assert np.array_equal(spoiled, spoil(batch, name, n_vocab=50, seed=3, step=11))
    assert not np.array_equal(spoiled, spoil(batch, name, n_vocab=50, seed=3, step=12))
    assert not np.array_equal(spoiled, spoil(batch, name, n_vocab=50, seed=4, step=11))


def test_shuffle_keeps_each_windows_tokens():
    spoiled = spoil(BATCH, "shuffle", n_vocab=50, seed=0, step=1)
    assert np.array_equal(np.sort(spoiled, axis=1), np.sort(BATCH, axis=1))
    assert not np.array_equal(spoiled, BATCH)


def test_repeat_tiles_a_short_period():
    assert all(is_repetitive(window) for window in spoil(BATCH, "repeat", 50, seed=0, step=1))


def test_garbage_covers_the_vocabulary():
    spoiled = spoil(np.zeros((64, 129), dtype=np.int64), "garbage", 50, seed=0, step=1)
    assert len(np.unique(spoiled)) == 50


def test_unknown_injection_names_the_valid_ones():
    with pytest.raises(UserError, match="garbage, shuffle, repeat"):
        spoil(BATCH, "gamma rays", 50, seed=0, step=1)
