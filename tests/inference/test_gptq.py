"""4-bit weights: the grid of torch's kernels, and errors where they hurt least."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from x1_pretrain.inference.gptq import GROUP, LEVELS, Int4, hessians, quantised
from x1_pretrain.inference.int4 import Int4Linear, packed


def random(*sizes, seed=0):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def correlated_inputs(n, width):
    return random(n, width, seed=1) @ random(width, width, seed=2) / width**0.5


def nearest(weight):
    return quantised(weight, torch.eye(weight.size(1)))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 100), st.integers(0, 9))
def test_to_the_nearest_no_weight_is_off_by_more_than_half_a_step(rows, columns, seed):
    weight = random(rows, columns, seed=seed)
    found = nearest(weight)
    assert found.levels.shape == (rows, columns + -columns % GROUP)
    assert found.levels.min() >= 0 and found.levels.max() < LEVELS
    step = found.scale.float().repeat_interleave(GROUP, dim=1)[:, :columns]
    error = (found.dequantised()[:, :columns] - weight).abs()
    assert (error <= step * 0.56 + 0.02 * weight.abs().max()).all()  # scale and zero are bf16


def test_with_a_diagonal_hessian_it_is_what_torchao_rounds_to():
    from torchao.prototype.quantization.int4 import Int4OpaqueTensor

    layer = nn.Linear(96, 64, bias=False).bfloat16()
    with torch.no_grad():
        layer.weight.copy_(random(64, 96))
        x = random(5, 96, seed=3).bfloat16()
        ours = Int4Linear(nearest(layer.weight), 96)(x).float()
        layer.weight = nn.Parameter(Int4OpaqueTensor.from_hp(layer.weight, [1, GROUP]), requires_grad=False)
        theirs = layer(x).float()
    assert (ours - theirs).square().mean() < 0.01 * theirs.square().mean()  # it computes levels in bf16


def test_outputs_change_less_than_by_rounding_to_the_nearest():
    x, weight = correlated_inputs(500, 96), random(48, 96)
    exact = x @ weight.T
    errors = [
        (x @ found.dequantised()[:, :96].T - exact).square().mean().item()
        for found in (quantised(weight, x.T @ x), nearest(weight))
    ]
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.parametrize("width", [24, 96])
def test_inputs_that_are_always_0_do_no_harm(width):
    x = correlated_inputs(50, width)
    x[:, : width // 2] = 0
    found = quantised(random(8, width), x.T @ x)
    assert found.dequantised().isfinite().all()
    everything_0 = quantised(random(8, width), torch.zeros(width, width))
    assert torch.equal(everything_0.levels, nearest(random(8, width)).levels)


def test_equal_weights_are_kept():
    found = nearest(torch.full((4, 64), 0.5)).dequantised()
    torch.testing.assert_close(found, torch.full((4, 64), 0.5), rtol=0, atol=1e-4)


def test_hessians_are_sums_over_the_inputs_of_each_layer():
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 2, bias=False))
    x = random(3, 5, 4)
    found = hessians(model, lambda: [model(part) for part in x.split(1)])
    flat = x.flatten(0, 1).double()
    torch.testing.assert_close(found["0"], flat.T @ flat)
    assert found["2"].shape == (6, 6)
    model(x)  # the hooks are gone
    torch.testing.assert_close(found["0"], flat.T @ flat)


@pytest.mark.parametrize("rows, columns", [(64, 96), (24, 48), (1023, 80), (7, 24)])
def test_the_kernel_computes_what_the_levels_say_at_any_width(rows, columns):
    weight = nearest(random(rows, columns))
    x = random(2, 3, columns, seed=4).bfloat16()
    expected = x.float() @ weight.dequantised()[:, :columns].T
    found = Int4Linear(weight, columns)(x)
    assert found.dtype == torch.bfloat16 and found.shape == (2, 3, rows)
    assert (found.float() - expected).abs().max() < 0.02 * expected.abs().max()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 15), min_size=4, max_size=4), min_size=1, max_size=5))
def test_two_levels_to_a_byte_come_apart_again(rows):
    levels = torch.tensor(rows, dtype=torch.int32)
    found = packed(levels)
    assert found.shape == (len(rows), 2)
    assert torch.equal(torch.stack((found >> 4, found & 15), dim=-1).flatten(1).int(), levels)


def test_a_weight_is_dequantised_by_the_kernels_convention():
    weight = Int4(torch.full((1, GROUP), 8, dtype=torch.int32), torch.tensor([[0.5]]), torch.tensor([[2.0]]))
    assert (weight.dequantised() == 2.0).all()
