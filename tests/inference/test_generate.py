"""Tokens that follow a prompt: the right ones, from the right distribution, past the end of the context."""

from itertools import islice

import pytest
import torch

from tests.inference.models import T, V, tiny_model
from x1_pretrain.errors import UserError
from x1_pretrain.inference.generate import Sampling, continuation, greedy

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]])


def written(model, prompt_BT, n, pick=greedy):
    return torch.stack(list(islice(continuation(model, prompt_BT, pick), n)), dim=1)


@torch.no_grad()
def without_a_cache(model, prompt_BT, n):
    tokens_BT = prompt_BT
    for _ in range(n):
        tokens_BT = torch.cat((tokens_BT, model(tokens_BT)[:, -1:].argmax(-1)), dim=1)
    return tokens_BT[:, prompt_BT.size(1) :]


def test_greedy_tokens_are_those_of_the_model_without_a_cache():
    model, prompt = tiny_model(value_residual=True), torch.arange(10).view(2, 5)
    assert torch.equal(written(model, prompt, T - 5), without_a_cache(model, prompt, T - 5))


@pytest.mark.parametrize("length", [1, T - 1, T])
def test_generation_goes_on_when_the_context_is_full(length):
    model, prompt = tiny_model(), torch.arange(length)[None]
    found = written(model, prompt, 2 * T)
    in_context = T - length + 1
    expected = without_a_cache(model, prompt, in_context)
    assert torch.equal(found[:, :in_context], expected)
    later_half = torch.cat((prompt, expected), dim=1)[:, -T // 2 :]
    again = T // 2
    assert torch.equal(found[:, in_context : in_context + again], without_a_cache(model, later_half, again))
    assert found.shape == (1, 2 * T) and found.max() < V


def draws(sampling, n=4000, seed=0):
    return torch.bincount(sampling.with_seed(seed)(LOGITS.expand(n, -1)), minlength=4) / n


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax_at_the_temperature(temperature):
    expected = (LOGITS[0] / temperature).softmax(-1)
    torch.testing.assert_close(draws(Sampling(temperature, None)), expected, rtol=0, atol=0.03)


def test_top_k_leaves_the_likeliest_in_proportion():
    found = draws(Sampling(1.0, 2))
    torch.testing.assert_close(found, torch.tensor([0.731, 0.269, 0, 0]), rtol=0, atol=0.03)
    tied = Sampling(1.0, 1).with_seed(0)(torch.zeros(50, 4))
    assert len(tied.unique()) == 1  # one token, not all that are tied


def test_temperature_0_and_nearly_0_take_the_likeliest():
    assert draws(Sampling(0.0, None))[0] == draws(Sampling(1e-30, None))[0] == 1


def test_a_seed_gives_the_same_draws_and_touches_no_global_generator():
    before = torch.get_rng_state()
    a, b, other = (draws(Sampling(1.0, None), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(a, b) and not torch.equal(a, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("inf")])
def test_what_is_no_temperature_is_refused(temperature):
    with pytest.raises(UserError, match=r"--temperature: .* use 0"):
        Sampling(temperature, None)


@pytest.mark.parametrize("top_k", [0, -1])
def test_a_top_k_without_tokens_is_refused(top_k):
    with pytest.raises(UserError, match="--top-k"):
        Sampling(1.0, top_k)
