"""What each number format changes in a model and what its file holds."""

import math
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from tests.inference.models import SHAPE, T, V, tiny_model
from x1_pretrain.errors import UserError
from x1_pretrain.inference.formats import FORMATS, converted, file_bytes, memory_bytes
from x1_pretrain.inference.gptq import GROUP, Int4
from x1_pretrain.inference.int4 import Int4Linear
from x1_pretrain.inference.kv_cache import KVCache, logits_of, read
from x1_pretrain.inference.loss import evaluate

CALIBRATION = torch.randint(0, V, (4, T), generator=torch.Generator().manual_seed(2))
BYTES = np.full(V, 3, dtype=np.uint16)


def windows(n=12):
    return np.random.default_rng(0).integers(0, V, (n, T + 1))


def test_unknown_format_is_refused():
    with pytest.raises(UserError, match="use fp32, bf16, int8, int4"):
        converted(tiny_model(), "int2", CALIBRATION)


@pytest.mark.parametrize("name", FORMATS)
def test_conversion_leaves_the_model_alone(name):
    model = tiny_model()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    converted(model, name, CALIBRATION)
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("tied_head", [False, True])
def test_logits_are_near_those_of_fp32_with_and_without_a_cache(name, tied_head):
    model = tiny_model(tied_head=tied_head, value_embeddings=True)
    served = converted(model, name, CALIBRATION).model
    with torch.no_grad():
        expected, found = model(CALIBRATION), served(CALIBRATION).float()
        cached = logits_of(served, read(served, CALIBRATION, KVCache(served, 4, T))).float()
    assert found.shape == expected.shape
    assert (found - expected).square().mean() < 0.02 * expected.square().mean()
    assert (cached - found).square().mean() < 1e-3 * expected.square().mean()


def test_int8_quantises_every_linear_layer_and_not_the_embedding():
    int8 = dict(converted(tiny_model(tied_head=True), "int8", CALIBRATION).model.named_parameters())
    assert int8["embedding.token.weight"].dtype == torch.bfloat16
    kinds = {name for name, p in int8.items() if hasattr(p, "__tensor_flatten__")}
    assert kinds == set(int8) - {"embedding.token.weight"}


def test_int4_is_of_every_linear_layer_but_the_head_and_its_file_is_whole():
    """Layers made of what the file holds compute the same: nothing is missing and nothing is the kernel's."""
    served = converted(tiny_model(), "int4", CALIBRATION)
    layers = {name: m for name, m in served.model.named_modules() if isinstance(m, Int4Linear)}
    assert len(layers) == 4 * SHAPE.n_layer
    for name, layer in layers.items():
        stored = {part: served.stored[f"{name}.weight.{part}"] for part in ("levels", "scale", "zero")}
        levels = torch.stack((stored["levels"] >> 4, stored["levels"] & 15), dim=-1).flatten(1).int()
        again = Int4Linear(Int4(levels, stored["scale"], stored["zero"]), layer.n_columns)
        x = torch.randn(3, layer.n_columns).bfloat16()
        assert torch.equal(layer(x), again(x))
    quantised = {f"{name}.weight.{part}" for name in layers for part in ("levels", "scale", "zero")}
    others = {
        name for name, _ in tiny_model().named_parameters() if name.removesuffix(".weight") not in layers
    }
    head = {name for name in served.stored if name.startswith("head.weight.")}
    assert set(served.stored) == quantised | head | others - {"head.weight"}
    assert {served.stored[name].dtype for name in head} >= {torch.int8}


def test_an_int4_file_has_half_a_byte_a_weight_and_four_a_group():
    served = converted(tiny_model(), "int4", CALIBRATION)
    head = V * (SHAPE.d_model + 4)  # int8, and a scale a row
    expected = SHAPE.N // 2 + 4 * SHAPE.N // GROUP + head + 2 * V * SHAPE.d_model
    assert expected < file_bytes(served) < expected + 4096


@pytest.mark.parametrize("tied_head", [False, True])
def test_file_bytes_are_the_parameters_and_a_header(tied_head):
    model = tiny_model(tied_head=tied_head)
    served = converted(model, "fp32", CALIBRATION)
    assert 4 * model.n_params() < file_bytes(served) < 4 * model.n_params() + 2048
    assert file_bytes(served) == len(save(dict(model.named_parameters())))


@pytest.mark.parametrize("tied_head", [False, True])
def test_memory_is_parameters_and_buffers_once(tied_head):
    model = tiny_model(tied_head=tied_head)
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    assert memory_bytes(model) == 4 * model.n_params() + buffers


def test_loss_is_the_mean_cross_entropy_and_bits_are_per_byte():
    model, w = tiny_model(logit_softcap=5.0), windows()
    found = evaluate(model, w, BYTES)
    x = torch.from_numpy(w)
    expected = model.loss(x[:, :-1], x[:, 1:].contiguous()).item()
    assert found.nats_per_token == pytest.approx(expected, rel=1e-6)
    assert found.bits_per_byte == pytest.approx(expected / math.log(2) / 3, rel=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 20))
def test_loss_does_not_depend_on_the_chunk(sequences):
    model, w = tiny_model(), windows()
    reference = evaluate(model, w, BYTES)
    with mock.patch("x1_pretrain.inference.loss.LOGITS_BYTES", sequences * 4 * V * T):
        found = evaluate(model, w, BYTES)
    assert found.nats_per_token == pytest.approx(reference.nats_per_token, rel=1e-6)
