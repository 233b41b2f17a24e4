"""The gradient noise scale: known answers on gradients whose mean and covariance are known."""

import pytest
import torch
from torch import nn

from x1_pretrain.noise_scale import GradientNoise, estimate, measure, noise_scale_tokens


def test_the_true_signal_and_noise_are_recovered():
    """|G|^2 = 4 and tr(S) = 30 per token by construction, batches of 10 tokens."""
    parameter, generator = nn.Parameter(torch.zeros(3)), torch.Generator().manual_seed(0)
    mean, sd = torch.tensor([2.0, 0.0, 0.0]), (10.0 / 10) ** 0.5  # variance 10 per token and coordinate

    def backward(batch):
        noise = torch.randn(3, generator=generator)
        parameter.grad = mean + sd * noise

    found = [measure([parameter], backward, [torch.zeros(1)] * 8, batch_tokens=10) for _ in range(2000)]
    assert sum(m.signal for m in found) / 2000 == pytest.approx(4.0, rel=0.03)
    assert sum(m.noise for m in found) / 2000 == pytest.approx(30.0, rel=0.03)
    assert noise_scale_tokens(found) == pytest.approx(7.5, rel=0.05)
    assert parameter.grad is None


def test_gradients_without_noise_have_none():
    assert estimate(5.0, 5.0, batch_tokens=64, batches=4) == GradientNoise(signal=5.0, noise=0.0)


def test_an_estimate_without_meaning_is_none():
    assert noise_scale_tokens([]) is None
    assert noise_scale_tokens([GradientNoise(signal=-1.0, noise=2.0)]) is None


def test_one_batch_tells_nothing():
    with pytest.raises(ValueError, match="at least 2"):
        estimate(1.0, 1.0, batch_tokens=64, batches=1)
