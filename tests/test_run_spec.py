"""What a run is and costs: tokens, FLOPs and N are those of the steps and of the model that it trains."""

import dataclasses

import pytest

from tests.conftest import RECIPE, SHAPE, TRAIN
from x1_pretrain.economics.flops import training_flops_per_token
from x1_pretrain.errors import UserError
from x1_pretrain.model import GPT
from x1_pretrain.run_spec import planned_steps, planned_tokens
from x1_pretrain.schedule import schedule_of

V = 257
FRACTIONS = (0.5, 1.0)
RECIPES = [
    {},
    {"activation": "swiglu"},
    {"schedule": "cosine"},
    {"batch_ramp": True},
    {"window_warmup": True},
    {"batch_ramp": True, "window_warmup": True, "activation": "swiglu"},
]


@pytest.fixture
def spec_of_recipe(small_spec, change):
    """A run of 60 steps with a branch at the half; its batch ramp is 5 steps a stage."""

    def build(recipe, **train):
        train = dataclasses.replace(TRAIN, **{"micro_batch": 2, "batch_ramp_steps": 5, **train})
        recipe = dataclasses.replace(RECIPE, **recipe)
        schedule = schedule_of(train, recipe, 60, FRACTIONS)
        return change(small_spec, train=train, recipe=recipe, schedule=schedule)

    return build


def step_flops(spec, step):
    """Counted FLOPs of one step, from the size of its batch and how far its attention reaches back."""
    shape, seq_len = spec.shape, spec.train.seq_len
    per_token = training_flops_per_token(
        shape.n_layer,
        shape.d_model,
        shape.n_head,
        shape.n_kv_head,
        V,
        seq_len,
        activation=spec.recipe.activation,
        window=spec.schedule.window(step, seq_len),
    )
    return spec.schedule.sequences(step) * seq_len * per_token


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(recipe) or "default")
def test_tokens_and_flops_are_a_sum_over_the_steps(spec_of_recipe, recipe):
    spec = spec_of_recipe(recipe)
    seq_len, total = spec.train.seq_len, spec.schedule.total_steps
    for end in (0, 1, 7, 12, 31, total):
        assert spec.tokens(end) == sum(spec.schedule.sequences(step) * seq_len for step in range(end))
    for first, end in ((0, total), (0, 1), (3, 14), (11, 47), (total, total)):
        assert spec.flops(V, first, end) == sum(step_flops(spec, step) for step in range(first, end))


def test_a_narrow_window_and_a_small_batch_cost_less(spec_of_recipe):
    def cost(**recipe):
        return spec_of_recipe(recipe).flops(V, 0, 60)

    assert cost(batch_ramp=True, window_warmup=True) < cost(window_warmup=True) < cost()
    assert cost(batch_ramp=True) < cost()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(recipe) or "default")
def test_the_work_left_is_what_is_not_done_yet_later_branches_included(spec_of_recipe, recipe):
    spec = spec_of_recipe(recipe)
    first, last = spec.schedule.branches
    steps = [range(first.start, first.end), range(last.start, last.end)]
    whole = sum(step_flops(spec, step) for branch in steps for step in branch)
    assert spec.work_left(V, 0, 0) == whole
    assert spec.work_left(V, 0, 9) == whole - sum(step_flops(spec, step) for step in range(9))
    assert spec.work_left(V, 1, 50) == sum(step_flops(spec, step) for step in range(50, 60))
    assert spec.work_left(V, 1, 60) == 0


@pytest.mark.parametrize("activation", ["relu2", "swiglu", "gelu"])
@pytest.mark.parametrize("d_model", [16, 48, 64])
def test_N_is_the_models_own(small_spec, change, activation, d_model):
    spec = change(change(small_spec, "recipe", activation=activation), "shape", d_model=d_model)
    assert GPT(spec.shape, spec.recipe, V, 32).N() == spec.N


@pytest.mark.parametrize(
    ("batch_sequences", "micro_batch", "first", "nearest"), [(24, 4, 6, 3), (40, 4, 10, 5), (72, 12, 18, 9)]
)
def test_a_micro_batch_that_does_not_divide_the_ramps_first_batch_is_refused(
    spec_of_recipe, batch_sequences, micro_batch, first, nearest
):
    sizes = {"batch_sequences": batch_sequences, "micro_batch": micro_batch}
    sentence = (
        f"train.micro_batch: {micro_batch} does not divide the {first} sequences that recipe.batch_ramp "
        f"starts with; the nearest that does is {nearest}"
    )
    with pytest.raises(UserError, match=f"^{sentence}$"):
        spec_of_recipe({"batch_ramp": True}, **sizes)
    spec_of_recipe({}, **sizes)
    spec_of_recipe({"batch_ramp": True}, **sizes | {"micro_batch": nearest})


@pytest.mark.parametrize("micro_batch", [2, 4, 8])
def test_a_micro_batch_larger_than_the_ramps_first_batch_takes_it_whole(spec_of_recipe, micro_batch):
    """The first steps have 2 sequences each; a micro-batch of 2, 4 or 8 is then that batch itself."""
    spec = spec_of_recipe({"batch_ramp": True}, micro_batch=micro_batch)
    assert spec.schedule.sequences(0) == 2


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(recipe) or "default")
def test_every_recipe_is_planned_the_same_tokens(recipe):
    """D = C / 6N to the nearest step, N of the reference block: a switch changes no run's data."""
    shape = dataclasses.replace(SHAPE, flops=3e9)
    train = dataclasses.replace(TRAIN, batch_ramp_steps=6)
    planned = planned_tokens(shape, train, dataclasses.replace(RECIPE, **recipe))
    assert abs(planned - shape.flops / (6 * shape.N)) <= train.batch_tokens / 2
    assert abs(planned - planned_tokens(shape, train, RECIPE)) <= train.batch_tokens / 2


def test_a_batch_ramp_takes_more_steps():
    train = dataclasses.replace(TRAIN, batch_ramp_steps=20)
    ramp = dataclasses.replace(RECIPE, batch_ramp=True)
    assert planned_steps(SHAPE, train, ramp) == planned_steps(SHAPE, train, RECIPE) + 25
