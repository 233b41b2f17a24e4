"""The spike lab's benchmark: its text, its sums, and a part of it run for real."""

import dataclasses

import numpy as np
import pytest
from incidents.cases import CLEAN, Result, run_case, setting
from incidents.text import N_VOCAB, standard_library
from spike_lab import calibration, confusion, summary

from tests.conftest import RECIPE, TRAIN
from x1_pretrain.spikes.injections import KINDS

RIGHT = Result("small", 0, "garbage", 211, "dataset_corruption", "foreign_tokens", True, True, 0, 0.9, "r")


def test_the_text_is_real_and_its_order_a_permutation():
    text = standard_library(seq_len=64)
    assert len(text.ids) > 2_000_000 and text.ids.max() < N_VOCAB
    assert np.array_equal(text.batch(3, 16, seed=1), text.batch(3, 16, seed=1))
    assert not np.array_equal(text.batch(3, 16, seed=1), text.batch(3, 16, seed=2))
    last = text.n_windows // 16 + 1  # spans two epochs
    assert text.batch(last, 16, seed=1).shape == (16, 65)
    held_out = np.concatenate(text.held_out(16, 4))
    assert held_out.shape == (64, 65)
    read = {window.tobytes() for n in range(1, 20) for window in text.batch(n, 16, seed=1)}
    assert not read & {window.tobytes() for window in held_out}


def test_undetermined_and_undetected_are_never_right_and_ranges_count_them():
    undecided = dataclasses.replace(RIGHT, cause="undetermined", right=False, range_right=True)
    unseen = dataclasses.replace(RIGHT, cause=None, right=False, range_right=None, against=None)
    clean = dataclasses.replace(RIGHT, injection=CLEAN, cause="benign", range_right=None)
    results = [RIGHT, undecided, unseen, clean]
    sums = summary(results, 1.0)
    assert sums["verdict_right"] == pytest.approx(1 / 3) and sums["range_right"] == pytest.approx(2 / 3)
    assert sums["clean_right"] == 1.0 and sums["undetermined"] == 1 and len(sums["wrong"]) == 2
    assert confusion(results)["garbage"] == {
        "dataset_corruption": 1,
        "undetermined": 1,
        "not detected": 1,
    }
    assert calibration(results) == {0: (2, 2), 1: (0, 0), 2: (0, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, CLEAN])
def test_each_injection_is_named_on_one_seed_of_the_smaller_size(kind):
    train = dataclasses.replace(TRAIN, warmup_steps=5, muon_lr=0.03, adamw_lr=0.01, embedding_lr=0.01)
    shared = setting(train, RECIPE)
    result, found = run_case(shared, "small", 50, kind, {})
    assert result.right, result.rule
    assert result.range_right is not False
    assert found is not None
