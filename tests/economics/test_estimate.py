import dataclasses
from pathlib import Path

import pytest

from tests.conftest import RECIPE
from x1_pretrain.economics.estimate import LAB_RUNS, n_vocab_of, work_left, work_of
from x1_pretrain.economics.preflight import Peak, Preflight
from x1_pretrain.errors import UserError
from x1_pretrain.run_spec import spec_of
from x1_pretrain.study import Study, load_profile, load_study

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tiny(monkeypatch):
    """The tiny profile, with a cool-down of its own so that tuning it changes no figure here."""
    monkeypatch.chdir(ROOT)
    choice = dataclasses.replace(load_study().choice, profile="tiny", model="X1", recipe=RECIPE)
    profile = load_profile(Path("experiments/profiles/tiny.yaml"))
    train = dataclasses.replace(profile.train, cooldown_fraction=0.2, batch_ramp_steps=5)
    return Study(choice=choice, profile=dataclasses.replace(profile, train=train))


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


def test_further_seeds_of_the_sweep_are_paid_for(tiny):
    sweep = dataclasses.replace(tiny.choice.sweep, seeds=3)
    thrice = dataclasses.replace(tiny, choice=dataclasses.replace(tiny.choice, sweep=sweep))
    for once, three in zip(work_of(tiny), work_of(thrice), strict=True):
        assert three.flops == (3 if once.name.startswith("sweep") else 1) * once.flops


SWITCHES = [
    {},
    {"activation": "swiglu"},
    {"schedule": "cosine"},
    {"batch_ramp": True, "window_warmup": True},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda switches: "-".join(switches) or "default")
def test_an_estimate_is_the_tokens_and_flops_of_the_runs_themselves(tiny, switches):
    recipe = dataclasses.replace(tiny.choice.recipe, **switches)
    study = Study(dataclasses.replace(tiny.choice, recipe=recipe), tiny.profile)
    train, sweep, *_, spike = work_of(study)
    n_vocab, batch = 1024, study.profile.train.batch_tokens

    spec = spec_of(study, "X1", "train", "train")
    steps = spec.schedule.total_steps
    assert (train.tokens, train.training_flops) == (spec.tokens(steps), spec.flops(n_vocab, 0, steps))

    spec = spec_of(study, "A", "sweep", "A", study.profile.sweep.branches)
    branches = spec.schedule.branches
    assert sweep.tokens == sum(spec.tokens(b.end) - spec.tokens(b.start) for b in branches)
    assert sweep.training_flops == sum(spec.flops(n_vocab, b.start, b.end) for b in branches)

    assert spike.tokens == LAB_RUNS * study.profile.spike.steps * batch, "the lab's batches have no ramp"
    for work in (train, sweep, spike):
        assert work.evaluation_flops > 0 and work.flops == work.training_flops + work.evaluation_flops


def test_measuring_the_gradient_noise_is_paid_for(tiny):
    def with_noise(batches):
        train = dataclasses.replace(tiny.profile.train, noise_batches=batches)
        (run,) = work_of(Study(tiny.choice, dataclasses.replace(tiny.profile, train=train)), "X1")
        return run

    none, four = with_noise(0), with_noise(4)
    assert four.training_flops == none.training_flops
    train, per_token = tiny.profile.train, none.evaluation_flops / (5 * tiny.profile.train.val_tokens)
    extra = 5 * 4 * train.batch_tokens * 3 * per_token  # 5 evaluations; a backward pass is two forward ones
    assert four.evaluation_flops - none.evaluation_flops == pytest.approx(extra)


def test_the_lab_is_charged_for_its_probes_and_not_for_evaluations_it_does_not_make(tiny):
    def lab(**changes):
        train = dataclasses.replace(tiny.profile.train, **changes)
        return work_of(Study(tiny.choice, dataclasses.replace(tiny.profile, train=train)))[-1]

    assert lab() == lab(val_tokens=64 * tiny.profile.train.val_tokens, noise_batches=16, evaluations=50)
    assert 0 < lab().evaluation_flops < lab().training_flops / 2
    assert lab().checkpoint_bytes == 0


def test_what_is_left_of_a_run_is_the_whole_less_what_is_done(tiny):
    spec = spec_of(tiny, "A", "sweep", "A", tiny.profile.sweep.branches)
    whole = work_left(spec, "A", 1024)
    first, second = spec.schedule.branches[:2]
    rest = work_left(spec, "A", 1024, branch=1, step=second.start + 3, evaluated=2)
    done = first.end - first.start + 3
    assert whole.tokens - rest.tokens == done * tiny.profile.train.batch_tokens
    assert whole.training_flops - rest.training_flops == spec.flops(1024, 0, first.end) + spec.flops(
        1024, second.start, second.start + 3
    )
    assert rest.evaluation_flops * 5 == whole.evaluation_flops * 3
    assert rest.checkpoint_bytes < whole.checkpoint_bytes and rest.fixed_s > rest.startup_s


def test_a_run_that_has_all_its_evaluations_still_has_a_sum(tiny):
    spec = spec_of(tiny, "X1", "train", "train")
    rest = work_left(spec, "X1", 1024, step=spec.schedule.total_steps - 1, evaluated=99)
    assert rest.evaluation_flops == 0 and rest.training_flops > 0
    asked = Preflight(
        (rest,), Peak(1e12, "a test"), 0.5, 1.0, "a test", tiny.profile.money.storage, 0.0, 0.0, 1.0
    )
    assert asked.evaluation_hours == 0 and asked.hours > asked.fixed_hours and asked.fits


def test_unknown_model_lists_the_valid(tiny):
    with pytest.raises(UserError, match="valid models"):
        work_of(tiny, "Z")
