"""The transformer: causal, position-aware, the size that config says, and seeded by its own generator."""

import dataclasses

import pytest
import torch

from tests.conftest import RECIPE, SHAPE
from x1_pretrain.config import ModelShape
from x1_pretrain.model import GPT

V, T = 50, 16


def model(shape=SHAPE, **recipe):
    return GPT(shape, dataclasses.replace(RECIPE, **recipe), V, T).initialise(0)


def tokens(seed=0, B=2):
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [SHAPE, ModelShape(3, 24, 2, 2, 1e9), ModelShape(2, 32, 4, 1, 1e9)])
def test_N_is_the_number_of_hidden_parameters(shape):
    net = model(shape)
    hidden = net.n_params() - net.embedding.weight.numel() - net.head.weight.numel()
    assert hidden == shape.N
    if shape.n_kv_head == shape.n_head:
        assert 12 * shape.n_layer * shape.d_model**2 == shape.N


@pytest.mark.parametrize("recipe", [{}, {"qk_norm": False}, {"activation": "gelu"}, {"tied_head": True}])
def test_a_later_token_never_changes_an_earlier_logit(recipe):
    net, x = model(zero_init=False, **recipe), tokens()
    changed = x.clone()
    changed[:, 9] = (changed[:, 9] + 1) % V
    difference = (net(x) - net(changed)).abs().amax(dim=(0, 2))
    assert difference[:9].max() == 0 and difference[9] > 0


def test_zero_init_starts_at_the_uniform_loss():
    x = tokens()
    assert model().loss(x, x).item() == pytest.approx(torch.log(torch.tensor(float(V))).item(), abs=1e-6)


def test_positions_matter():
    net = model(zero_init=False)
    x = tokens(B=1)
    assert not torch.allclose(net(x)[0, -1], net(x.flip(1).roll(-1, 1))[0, -1])


def test_initialising_moves_no_global_rng_and_depends_on_the_seed():
    before = torch.get_rng_state()
    first, again = GPT(SHAPE, RECIPE, V, T).initialise(1), GPT(SHAPE, RECIPE, V, T).initialise(1)
    other = GPT(SHAPE, RECIPE, V, T).initialise(2)
    # Building the modules draws from torch's RNG; `initialise` itself must not.
    torch.set_rng_state(before)
    first.initialise(1)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.embedding.weight, again.embedding.weight)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_a_shorter_sequence_gives_the_same_prefix():
    net, x = model(zero_init=False), tokens()
    torch.testing.assert_close(net(x[:, :7]), net(x)[:, :7])


def test_tied_head_counts_once():
    assert model().n_params() - model(tied_head=True).n_params() == V * SHAPE.d_model
