"""The transformer: causal, position-aware, the size that config says, seeded; what each switch does."""

import dataclasses

import pytest
import torch

from tests.conftest import RECIPE, SHAPE
from x1_pretrain.errors import UserError
from x1_pretrain.model import GPT
from x1_pretrain.shape import ModelShape

V, T = 50, 16
SWITCHES = [
    {},
    {"qk_norm": False},
    {"activation": "gelu"},
    {"activation": "swiglu"},
    {"position": "learned"},
    {"token_shift": True},
    {"bigram_rows": 37},
    {"token_shift": True, "bigram_rows": 37, "position": "learned"},
    {"value_residual": True},
    {"value_embeddings": True},
    {"value_residual": True, "value_embeddings": True},
    {"embedding_shortcut": True},
    {"window_warmup": True},
    {"tied_head": True},
    {"logit_softcap": 5.0},
    {"z_loss": 0.1},
    {"mup": True},
    {"mup": True, "tied_head": True},
]
EVERYTHING = {
    "activation": "swiglu",
    "token_shift": True,
    "bigram_rows": 37,
    "value_residual": True,
    "value_embeddings": True,
    "embedding_shortcut": True,
    "window_warmup": True,
    "zero_init": False,
    "logit_softcap": 5.0,
    "z_loss": 0.1,
    "mup": True,
}
LAYERS3 = ModelShape(3, 24, 4, 2, 1e9)

switches = pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "-".join(s) or "none")


def model(shape=SHAPE, base_width=None, gradient_checkpointing=False, **recipe):
    recipe = dataclasses.replace(RECIPE, **recipe)
    net = GPT(shape, recipe, V, T, base_width, gradient_checkpointing=gradient_checkpointing)
    return net.initialise(0)


def tokens(seed=0, B=2):
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(seed))


def gradients(net, x):
    net.zero_grad()
    net.loss(x, x.roll(-1, 1)).backward()
    return {name: p.grad for name, p in net.named_parameters()}


# ---------------------------------------------------------------- whatever the switches


@pytest.mark.parametrize("shape", [SHAPE, ModelShape(3, 24, 2, 2, 1e9), ModelShape(2, 32, 4, 1, 1e9)])
@pytest.mark.parametrize("activation", ["relu2", "swiglu"])
def test_N_is_the_number_of_hidden_parameters(shape, activation):
    net = model(shape, activation=activation)
    hidden = net.n_params() - net.embedding.token.weight.numel() - net.head.weight.numel()
    assert net.N() == hidden == shape.N_of(activation)
    if shape.n_kv_head == shape.n_head:
        assert net.N() == pytest.approx(12 * shape.n_layer * shape.d_model**2, rel=0.02)


@pytest.mark.parametrize("extra", ["value_embeddings", "value_residual", "embedding_shortcut"])
def test_N_counts_neither_tables_nor_scalars(extra):
    assert model(**{extra: True}).N() == model().N() < model(**{extra: True}).n_params()


@switches
def test_a_later_token_never_changes_an_earlier_logit(switches):
    net, x = model(LAYERS3, zero_init=False, **switches), tokens()
    changed = x.clone()
    changed[:, 9] = (changed[:, 9] + 1) % V
    difference = (net(x) - net(changed)).abs().amax(dim=(0, 2))
    assert difference[:9].max() == 0 and difference[9] > 0


@switches
def test_a_shorter_sequence_gives_the_same_prefix(switches):
    net, x = model(LAYERS3, zero_init=False, **switches), tokens()
    torch.testing.assert_close(net(x[:, :7]), net(x)[:, :7])


@switches
def test_every_parameter_is_initialised_and_trained(switches):
    net = model(LAYERS3, zero_init=False, **switches)
    for p in net.parameters():
        p.detach().fill_(float("nan"))
    found = gradients(net.initialise(0), tokens())
    assert all(p.isfinite().all() for p in net.parameters())
    assert [name for name, grad in found.items() if grad is None or not grad.abs().max() > 0] == []


@switches
def test_order_matters(switches):
    net = model(zero_init=False, **switches)
    x = tokens(B=1)
    assert not torch.allclose(net(x)[0, -1], net(x.flip(1).roll(-1, 1))[0, -1])


def test_initialising_moves_no_global_rng_and_depends_on_the_seed():
    first, again = model(**EVERYTHING), model(**EVERYTHING)
    other = model(**EVERYTHING).initialise(2)
    before = torch.get_rng_state()
    first.initialise(0)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.embedding.token.weight, other.embedding.token.weight)


@pytest.mark.parametrize(
    "switches", [{}, {"activation": "swiglu"}, {"embedding_shortcut": True}, {"mup": True}]
)
def test_zero_init_starts_at_the_uniform_loss(switches):
    x = tokens()
    net = model(**switches)
    assert net.loss(x, x).item() == pytest.approx(torch.log(torch.tensor(float(V))).item(), abs=1e-6)


def test_tied_head_counts_once():
    assert model().n_params() - model(tied_head=True).n_params() == V * SHAPE.d_model


@pytest.mark.parametrize("switches", [{}, EVERYTHING], ids=["none", "everything"])
def test_gradient_checkpointing_changes_no_bit(switches):
    x = tokens()
    plain = model(LAYERS3, **switches)
    frugal = model(LAYERS3, gradient_checkpointing=True, **switches)
    assert torch.equal(plain.loss(x, x), frugal.loss(x, x))
    expected, found = gradients(plain, x), gradients(frugal, x)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_gradient_checkpointing_keeps_less():
    def kept(net):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            net.loss(tokens(), tokens())
        return sum(sizes)

    assert kept(model(LAYERS3, gradient_checkpointing=True)) < kept(model(LAYERS3)) / 2


def test_a_package_that_is_missing_is_a_users_error(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"device.attention: flash needs the package flash-attn"):
        GPT(SHAPE, RECIPE, V, T, attention="flash")


# ---------------------------------------------------------------- switch by switch


def test_learned_positions_replace_rope():
    """With equal positions one layer sees earlier tokens as a set: no other source of order is left."""
    net = model(ModelShape(1, 16, 2, 1, 1e9), position="learned", zero_init=False)
    x = tokens(B=1)
    shuffled = torch.cat((x[:, :-1].flip(1), x[:, -1:]), dim=1)
    assert net.embedding.position.weight.shape == (T, 16)
    assert not torch.allclose(net(x)[0, -1], net(shuffled)[0, -1])
    with torch.no_grad():
        net.embedding.position.weight.zero_()
    torch.testing.assert_close(net(x)[0, -1], net(shuffled)[0, -1])


def test_swiglu_is_the_papers():
    mlp = model(activation="swiglu", zero_init=False).blocks[0].mlp
    x = torch.randn(3, SHAPE.d_model, generator=torch.Generator().manual_seed(0))
    gate = x @ mlp.gate.weight.T
    expected = (gate * torch.sigmoid(gate) * (x @ mlp.up.weight.T)) @ mlp.down.weight.T
    torch.testing.assert_close(mlp(x), expected)


def test_value_residual_mixes_the_first_layers_values():
    net = model(LAYERS3, value_residual=True, zero_init=False)
    plain = model(LAYERS3, zero_init=False)
    plain.load_state_dict(net.state_dict(), strict=False)
    shares = [block.attention.first_value_share for block in net.blocks]
    assert shares[0] is None and shares[1].item() == shares[2].item() == 0.5
    x = tokens()
    with torch.no_grad():
        for share in shares[1:]:
            share.zero_()
        torch.testing.assert_close(net(x), plain(x))
        for share in shares[1:]:
            share.fill_(1.0)
        before = net(x)
        for block in net.blocks[1:]:  # with all of the first layer's values, their own do not matter
            block.attention.qkv.weight[-block.attention.qkv_widths[2] :] = 0.0
        torch.testing.assert_close(net(x), before)


def test_the_first_values_are_the_layers_own_without_its_value_embedding():
    net, x = model(LAYERS3, value_residual=True, value_embeddings=True, zero_init=False), tokens()
    first, *others = (block.attention for block in net.blocks)
    with torch.no_grad():
        first.projection.weight.zero_()  # only by its values can the first layer reach the others
        for attention in others:
            attention.first_value_share.fill_(1.0)
        before = net(x)
        first.value_embedding.weight.add_(1.0)
        assert torch.equal(net(x), before)
        first.qkv.weight.neg_()
        assert not torch.allclose(net(x), before)


@pytest.mark.parametrize("n_layer, having", [(1, [0]), (2, [1]), (3, [0, 2]), (4, [1, 3])])
def test_value_embeddings_are_on_alternate_layers_the_last_included(n_layer, having):
    net = model(ModelShape(n_layer, 16, 4, 2, 1e9), value_embeddings=True)
    tables = [block.attention.value_embedding for block in net.blocks]
    assert [i for i, table in enumerate(tables) if table is not None] == having
    assert all(tables[i].weight.shape == (V, 8) for i in having)


def test_value_embeddings_add_what_is_looked_up():
    """A table that holds each token's own values doubles them, which scales what attention gives by two."""
    net = model(ModelShape(1, 16, 2, 1, 1e9), value_embeddings=True, zero_init=False)
    attention = net.blocks[0].attention
    given = []
    attention.projection.register_forward_hook(lambda module, inputs, output: given.append(inputs[0]))
    with torch.no_grad():
        normed = torch.nn.functional.rms_norm(net.embedding.token.weight, (16,))
        values = torch.nn.functional.rms_norm(normed, (16,)) @ attention.qkv.weight[-8:].T
        attention.value_embedding.weight.zero_()
        net(tokens())
        attention.value_embedding.weight.copy_(values)
        net(tokens())
    torch.testing.assert_close(given[1], 2 * given[0])


def test_the_shortcut_starts_as_the_plain_model_and_feeds_the_embedding_to_every_block():
    net, plain = model(LAYERS3, embedding_shortcut=True, zero_init=False), model(LAYERS3, zero_init=False)
    x = tokens()
    torch.testing.assert_close(net(x), plain(x))
    with torch.no_grad():
        net.blocks[-1].residual_scale.zero_()
        net.blocks[-1].shortcut_scale.fill_(1.0)
        only_last = model(LAYERS3, zero_init=False)
        only_last.load_state_dict(plain.state_dict())
        only_last.blocks = only_last.blocks[-1:]
        torch.testing.assert_close(net(x), only_last(x))


def test_a_window_bounds_how_far_a_token_is_seen():
    net, x = model(window_warmup=True, zero_init=False), tokens()
    full = net(x)
    net.set_window(3)
    changed = x.clone()
    changed[:, 0] = (changed[:, 0] + 1) % V
    seen = (net(x) - net(changed)).abs().amax(dim=(0, 2)) > 0
    reach = SHAPE.n_layer * (3 - 1)  # each layer looks back two tokens beyond its own
    assert seen[: reach + 1].all() and not seen[reach + 1 :].any()
    net.set_window(None)
    assert torch.equal(net(x), full)
    torch.testing.assert_close(full, model(zero_init=False)(x))


def test_only_a_model_with_window_warmup_takes_a_window():
    net = model()
    net.set_window(None)
    with pytest.raises(ValueError, match="window_warmup"):
        net.set_window(8)


@pytest.mark.slow
def test_no_window_compiles_a_graph_anew():
    torch._dynamo.reset()  # graphs of earlier tests have other global states
    x, net = tokens(), model(window_warmup=True, zero_init=False)
    compiled = torch.compile(net.loss, dynamic=False, fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for window in (4, 9, None):
            net.set_window(window)
            torch.testing.assert_close(compiled(x, x), net.loss(x, x))


def test_softcap_bounds_and_hardly_changes_small_logits():
    x = tokens()
    plain, capped = model(zero_init=False), model(zero_init=False, logit_softcap=0.5)
    torch.testing.assert_close(capped(x), 0.5 * torch.tanh(plain(x) / 0.5))
    assert capped(x).abs().max() < 0.5 < plain(x).abs().max()
    expected = torch.nn.functional.cross_entropy(capped(x).flatten(0, 1), x.flatten())
    torch.testing.assert_close(capped.loss(x, x), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_z_loss_is_in_the_gradient_and_not_in_the_value(reduction):
    x, weight = tokens(), 0.1
    plain, pulled = model(zero_init=False), model(zero_init=False, z_loss=weight)
    assert torch.equal(plain.loss(x, x, reduction), pulled.loss(x, x, reduction))
    z_N = weight * plain(x).logsumexp(-1).square()
    expected = plain.loss(x, x, reduction).sum() + (z_N.mean() if reduction == "mean" else z_N.sum())
    expected = torch.autograd.grad(expected, list(plain.parameters()))
    found = torch.autograd.grad(pulled.loss(x, x, reduction).sum(), list(pulled.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_loss_is_of_the_logits():
    x = tokens()
    net = model(zero_init=False)
    expected = torch.nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten(), reduction="none")
    assert torch.equal(net.loss(x, x, "none"), expected)
    assert net.loss(x, x).item() == pytest.approx(expected.mean().item(), rel=1e-6)
    assert net.loss(x, x, "sum").item() == pytest.approx(expected.sum().item(), rel=1e-6)
