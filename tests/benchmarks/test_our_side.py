"""Our side: the contest's terms on the study's recipe, and branches that stand for runs of their length."""

import dataclasses
from pathlib import Path

import pytest
from contest.our_side import NAME, OurSide, on_terms, spec_for
from contest.terms import Terms

from x1_pretrain.errors import UserError
from x1_pretrain.study import Study, study_from

HORIZONS = (60, 80, 100, 130, 160, 235)


@pytest.fixture
def study() -> Study:
    """The default study, uncompiled."""
    found = study_from("tiny")
    device = dataclasses.replace(found.profile.device, compile=False, precision="fp32")
    return dataclasses.replace(found, profile=dataclasses.replace(found.profile, device=device))


def test_the_terms_replace_shape_batch_and_threads_and_keep_the_recipe(
    study: Study, small_terms: Terms
) -> None:
    found = on_terms(study, small_terms)
    shape, train = found.shape_of(NAME), found.profile.train
    assert (shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head) == (1, 16, 2, 2)
    assert (train.seq_len, train.batch_sequences, train.micro_batch, train.val_tokens) == (32, 4, 4, 256)
    assert (found.profile.device.threads, found.choice.seed) == (1, 3)
    assert found.choice.recipe == study.choice.recipe
    same = ("muon_lr", "adamw_lr", "embedding_lr", "warmup_steps", "cooldown_fraction")
    assert all(getattr(train, name) == getattr(study.profile.train, name) for name in same)


def test_a_shape_that_cannot_be_is_named(study: Study, small_terms: Terms) -> None:
    with pytest.raises(UserError, match=r"--shape 1,16,3.*n_head"):
        on_terms(study, dataclasses.replace(small_terms, n_head=3))


def test_each_horizon_is_a_branch_of_exactly_that_length(study: Study, small_terms: Terms) -> None:
    spec = spec_for(on_terms(study, small_terms), HORIZONS)
    assert tuple(branch.end for branch in spec.schedule.branches) == HORIZONS
    assert spec.eval_every == HORIZONS[-1]


def test_a_branch_is_worth_a_run_of_its_length(
    study: Study, small_terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the lr, which goes with the length of the whole run; here it does not."""
    monkeypatch.chdir(tmp_path)
    train = dataclasses.replace(study.profile.train, horizon_exponent=0.0)
    study = dataclasses.replace(study, profile=dataclasses.replace(study.profile, train=train))
    side = OurSide(study, small_terms)
    branches = side.train((8, 12))
    assert [(point.steps, point.tokens) for point in branches.points] == [(8, 8 * 128), (12, 12 * 128)]
    assert branches.step_s > 0 and branches.first_step_s > 0
    assert side.train((8,)).points == branches.points[:1]


def test_timed_steps_are_of_the_same_model(
    study: Study, small_terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    side = OurSide(study, small_terms)
    assert side.time_steps(2) > 0
    assert side.trainer is not None and side.trainer.model.shape == side.study.shape_of(NAME)
