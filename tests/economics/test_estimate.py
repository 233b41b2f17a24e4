import dataclasses
from pathlib import Path

import pytest

from x1_pretrain.economics.estimate import n_vocab_of, work_of
from x1_pretrain.errors import UserError
from x1_pretrain.study import Study, load_profile, load_study

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.chdir(ROOT)
    choice = dataclasses.replace(load_study().choice, profile="tiny", model="X1")
    return Study(choice=choice, profile=load_profile(Path("experiments/profiles/tiny.yaml")))


@pytest.mark.parametrize("name, size", [("gpt2", 50257), ("gpt2:1024", 1024)])
def test_vocabulary_of_a_tokenizer(name, size):
    assert n_vocab_of(name) == size


@pytest.mark.parametrize("name", ["gpt2:", "gpt2:0", "gpt2:x", "llama", ""])
def test_other_tokenizers_are_refused(name):
    with pytest.raises(UserError, match="gpt2"):
        n_vocab_of(name)


def test_one_model_spends_its_flops(tiny):
    (run,) = work_of(tiny, "X1")
    shape = tiny.profile.models["X1"]
    assert 6 * shape.N * run.tokens == pytest.approx(shape.flops, rel=0.01)
    assert run.flops > run.tokens * 6 * shape.N  # head and attention are counted


def test_study_has_train_sweep_with_branches_and_spike(tiny):
    names = [run.name for run in work_of(tiny)]
    assert names == ["train X1", "sweep A", "sweep B", "sweep C", "spike A"]
    sweep = next(run for run in work_of(tiny) if run.name == "sweep B")
    (plain,) = work_of(tiny, "B")
    assert 1.1 < sweep.tokens / plain.tokens < 1.3


def test_unknown_model_lists_the_valid(tiny):
    with pytest.raises(UserError, match="valid models"):
        work_of(tiny, "Z")
