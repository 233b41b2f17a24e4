"""The formula against torch's own counter, on the model that is trained."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.economics.flops import (
    forward_flops_per_token,
    six_nd,
    tokens_for,
    training_flops_per_token,
)
from x1_pretrain.errors import UserError


@pytest.mark.parametrize(
    "n_layer, d_model, n_head, n_kv_head, tied",
    [(2, 64, 4, 4, False), (3, 64, 4, 2, False), (1, 96, 6, 1, True)],
)
def test_agrees_with_torch_flop_counter(n_layer, d_model, n_head, n_kv_head, tied):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from x1_pretrain.config import ModelShape, Recipe
    from x1_pretrain.model import GPT

    V, T, B = 512, 128, 2
    shape = ModelShape(n_layer, d_model, n_head, n_kv_head, flops=1e9)
    recipe = Recipe("muon", "relu2", qk_norm=True, zero_init=False, tied_head=tied)
    model = GPT(shape, recipe, n_vocab=V, seq_len=T).initialise(0)
    tokens_BT = torch.zeros(B, T, dtype=torch.long)
    # The math kernel: fused ones recompute scores in the backward pass, which must not count.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        loss = model.loss(tokens_BT, tokens_BT)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        loss.backward()
    counted = (forward.get_total_flops(), backward.get_total_flops())
    arguments = (n_layer, d_model, n_head, n_kv_head, V, T)
    assert forward_flops_per_token(*arguments) * B * T == pytest.approx(counted[0], rel=0.01)
    assert training_flops_per_token(*arguments) * B * T == pytest.approx(sum(counted), rel=0.01)


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


def test_six_nd_and_back():
    assert six_nd(1e9, 2e10) == 1.2e20
    assert tokens_for(six_nd(442368, 7.5e6), 442368) == pytest.approx(7.5e6)


@pytest.mark.parametrize(
    "arguments, named",
    [
        ((0, 64, 4, 4, 9, 9), "n_layer"),
        ((1, 65, 4, 4, 9, 9), "n_head"),
        ((1, 64, 4, 3, 9, 9), "n_kv"),
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
