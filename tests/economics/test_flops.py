"""The formula against torch's own counter, on the model that is trained."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import RECIPE
from x1_pretrain.economics.flops import forward_flops_per_token, six_nd, training_flops_per_token
from x1_pretrain.errors import UserError
from x1_pretrain.shape import matmul_params_per_layer, mlp_width

V, T, B = 512, 128, 2


def banded(q_BTHS, k_BTKS, v_BTKS, window):
    """Attention that computes no key outside its window: SDPA computes them all, and masks.

    Queries before the window is full get keys of zeros, masked: the formula counts a whole window too.
    """
    import torch

    group = q_BTHS.size(2) // k_BTKS.size(2)
    keys, values = (
        torch.nn.functional.pad(x.repeat_interleave(group, dim=2), (0, 0, 0, 0, window - 1, 0))
        .unfold(1, window, 1)  # [B, T, H, S, window]
        .flatten(0, 2)
        for x in (k_BTKS, v_BTKS)
    )
    B, T, H, S = q_BTHS.shape
    scores = torch.bmm(q_BTHS.reshape(-1, 1, S), keys).view(B, T, H, window) / S**0.5
    outside = torch.arange(window) < window - 1 - torch.arange(T)[:, None]
    shares = scores.masked_fill(outside[None, :, None], -torch.inf).softmax(-1)
    return torch.bmm(shares.view(-1, 1, window), values.mT).view(B, T, H, S)


@pytest.mark.parametrize("window", [None, 16, 48])
@pytest.mark.parametrize(
    "n_layer, d_model, n_head, n_kv_head, switches",
    [
        (2, 64, 4, 4, {}),
        (3, 64, 4, 2, {}),
        (1, 96, 6, 1, {"tied_head": True}),
        (2, 64, 4, 4, {"activation": "swiglu"}),
        (2, 80, 4, 1, {"activation": "swiglu", "value_embeddings": True, "position": "learned"}),
    ],
)
def test_agrees_with_torch_flop_counter(n_layer, d_model, n_head, n_kv_head, switches, window, monkeypatch):
    import dataclasses

    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from x1_pretrain import model as model_module
    from x1_pretrain.shape import ModelShape

    shape = ModelShape(n_layer, d_model, n_head, n_kv_head, flops=1e9)
    recipe = dataclasses.replace(RECIPE, zero_init=False, window_warmup=window is not None, **switches)
    model = model_module.GPT(shape, recipe, n_vocab=V, seq_len=T).initialise(0)
    model.set_window(window)
    tokens_BT = torch.arange(B * T).view(B, T) % V
    if window is not None:
        expected = model.loss(tokens_BT, tokens_BT)
        monkeypatch.setattr(
            model_module, "attend", lambda q, k, v, library, mask, scale: banded(q, k, v, window)
        )
        torch.testing.assert_close(model.loss(tokens_BT, tokens_BT), expected)
    # The math kernel: fused ones recompute scores in the backward pass, which must not count.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        loss = model.loss(tokens_BT, tokens_BT)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        loss.backward()
    counted = (forward.get_total_flops(), backward.get_total_flops())
    arguments = (n_layer, d_model, n_head, n_kv_head, V, T, recipe.activation, window)
    assert forward_flops_per_token(*arguments) * B * T == pytest.approx(counted[0], rel=0.01)
    assert training_flops_per_token(*arguments) * B * T == pytest.approx(sum(counted), rel=0.01)
    assert matmul_params_per_layer(d_model, n_head, n_kv_head, recipe.activation) * n_layer == model.N()


@given(
    st.integers(1, 80),
    st.integers(1, 64),
    st.integers(1, 32),
    st.integers(1, 9),
    st.integers(1, 999),
)
def test_reduces_to_palm_formula(n_layer, head_size, n_head, vocab, seq_len):
    """6 N_matmul + 12 L H Q T, with N_matmul = 12 L d^2 + d V for plain attention."""
    d = head_size * n_head
    palm = 6 * (12 * n_layer * d * d + d * vocab) + 12 * n_layer * n_head * head_size * seq_len
    assert training_flops_per_token(n_layer, d, n_head, n_head, vocab, seq_len) == palm


def test_gpt2_small_is_about_the_published_figure():
    """124M parameters, T = 1024: 6N + 12LHQT = 0.86 GFLOP per token."""
    assert training_flops_per_token(12, 768, 12, 12, 50257, 1024) == pytest.approx(0.855e9, rel=0.01)


def test_a_window_counts_up_to_the_sequence_and_may_be_a_mean():
    def counted(window):
        return training_flops_per_token(2, 64, 4, 4, V, T, window=window)

    assert counted(None) == counted(T) == counted(10 * T)
    assert counted(40.5) == (counted(40) + counted(41)) / 2
    assert isinstance(counted(40.5), int)


@given(st.integers(32, 4096))
def test_swiglu_has_about_as_many_weights(d_model):
    width = mlp_width(d_model, "swiglu")
    assert width % 8 == 0 and abs(3 * width - 8 * d_model) <= 3 * 4
    assert mlp_width(d_model, "relu2") == mlp_width(d_model, "gelu") == 4 * d_model


def test_six_nd():
    assert six_nd(1e9, 2e10) == 1.2e20


@pytest.mark.parametrize(
    "arguments, named",
    [
        ((0, 64, 4, 4, 9, 9), "n_layer"),
        ((1, 65, 4, 4, 9, 9), "n_head"),
        ((1, 64, 4, 3, 9, 9), "n_kv"),
        ((1, 64, 4, 4, 9, 9, "relu2", 0), "window"),
        ((1, 64, 4, 4, 9, 9, "relu2", float("nan")), "window"),
    ],
)
def test_impossible_shape_is_named(arguments, named):
    with pytest.raises(UserError, match=named):
        training_flops_per_token(*arguments)


def test_economics_does_not_load_torch():
    code = (
        "import sys, x1_pretrain.budget_guard, x1_pretrain.economics.flops;sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
