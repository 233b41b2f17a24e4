"""What a model with a cache computes is what it computes without one, whatever its recipe."""

import dataclasses
import typing

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inference.models import SHAPE, T, V, tiny_model
from x1_pretrain.economics.cost import kv_cache_bytes
from x1_pretrain.inference.kv_cache import KVCache, logits_of, read
from x1_pretrain.shape import ModelShape, Recipe

VALUES = {"bigram_rows": [37], "logit_softcap": [2.0], "z_loss": [1e-4], "optimizer": [], "schedule": []}


def switches() -> list[dict]:
    """Each switch of the recipe at each of its values, read from its type: a new one is tested at once."""
    hints = typing.get_type_hints(Recipe)
    found = []
    for field in dataclasses.fields(Recipe):
        values = VALUES.get(field.name)
        if values is None:
            hint = hints[field.name]
            values = [False, True] if hint is bool else typing.get_args(hint)
        found += [{field.name: value} for value in values]
    everything = {name: True for name, hint in hints.items() if hint is bool}
    return [
        *found,
        everything | {"logit_softcap": 2.0},
        everything | {"position": "learned", "bigram_rows": 37},
    ]


def tokens(batch=2, length=T):
    return torch.randint(0, V, (batch, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def in_pieces(model, tokens_BT, cuts):
    """Logits [B, T, V] of the tokens read piece by piece."""
    cache = KVCache(model, tokens_BT.size(0), model.seq_len)
    pieces = torch.tensor_split(tokens_BT, list(cuts), dim=1)
    return torch.cat([logits_of(model, read(model, piece, cache)) for piece in pieces], dim=1)


def perturbed(model):
    """Scalars and gains away from where they start, where some of them do nothing."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim < 2:
                parameter.add_(0.3)
    return model


@pytest.mark.parametrize("recipe", switches(), ids=str)
def test_logits_with_a_cache_are_those_without(recipe):
    model, tokens_BT = perturbed(tiny_model(**{**recipe, "zero_init": False})), tokens()
    for window in (None, 5) if recipe.get("window_warmup") else (None,):
        model.set_window(window)
        with torch.no_grad():
            expected = model(tokens_BT)
        assert expected.std() > 0.01
        torch.testing.assert_close(in_pieces(model, tokens_BT, [7, 8, 9, 20]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_grouped_heads_are_cached_as_they_are(n_kv_head):
    shape = dataclasses.replace(SHAPE, n_kv_head=n_kv_head)
    model, tokens_BT = tiny_model(shape), tokens(1)
    with torch.no_grad():
        expected = model(tokens_BT)
    torch.testing.assert_close(in_pieces(model, tokens_BT, range(1, T)), expected, rtol=1e-4, atol=1e-5)


def test_in_bf16_they_agree_as_far_as_bf16_does():
    model = tiny_model(value_residual=True, value_embeddings=True).bfloat16()
    with torch.no_grad():
        expected = model(tokens()).float()
    found = in_pieces(model, tokens(), [16]).float()
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, T - 1), unique=True).map(sorted))
def test_how_the_tokens_are_cut_does_not_matter(cuts):
    model, tokens_BT = tiny_model(value_residual=True), tokens(1)
    with torch.no_grad():
        expected = model(tokens_BT)
    torch.testing.assert_close(in_pieces(model, tokens_BT, cuts), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype, value_bytes", [(torch.float32, 4), (torch.bfloat16, 2)])
@pytest.mark.parametrize("batch, capacity", [(1, T), (3, 9)])
def test_bytes_are_those_of_the_formula(dtype, value_bytes, batch, capacity):
    shape = ModelShape(n_layer=3, d_model=48, n_head=6, n_kv_head=2, flops=1e9)
    cache = KVCache(tiny_model(shape).to(dtype), batch, capacity)
    assert cache.n_bytes == kv_cache_bytes(3, 2, 8, value_bytes, capacity, batch)


def test_more_tokens_than_there_is_room_for_are_refused():
    model = tiny_model()
    with pytest.raises(ValueError, match="33 tokens exceed the cache of 40 or context of 32"):
        read(model, tokens(1, T + 1), KVCache(model, 1, 40))
    with pytest.raises(ValueError, match="9 tokens exceed the cache of 8"):
        read(model, tokens(1, 9), KVCache(model, 1, 8))
