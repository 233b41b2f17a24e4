"""A tiny random checkpoint through the whole of the inference stage."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.conftest import MONEY, RECIPE
from x1_pretrain.checkpoint import publish
from x1_pretrain.config import Inference, as_dict
from x1_pretrain.errors import UserError
from x1_pretrain.inference import (
    converted,
    evaluate,
    generate,
    price_of,
    weight_bytes,
    write_inference,
)
from x1_pretrain.model import GPT
from x1_pretrain.shape import ModelShape

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
V, T = 300, 32
SHAPE = ModelShape(n_layer=2, d_model=64, n_head=4, n_kv_head=2, flops=1e9)


def tiny_model(**recipe):
    recipe = dataclasses.replace(RECIPE, **{"zero_init": False, **recipe})
    return GPT(SHAPE, recipe, V, T).initialise(0)


def publish_at(folder, model):
    info = {"shape": as_dict(SHAPE), "recipe": as_dict(model.recipe), "n_vocab": V, "seq_len": T}
    publish(folder, model, info | {"base_width": SHAPE.d_model, "tokenizer": "toy"})


def windows(n=12, seed=0):
    return np.random.default_rng(seed).integers(0, V, (n, T + 1))


def money(price=0.0):
    return dataclasses.replace(MONEY, price_usd_per_hour=price, price_source="a price list", cap_usd=50.0)


class FakeTokens:
    """Stands in for a folder of shards: random ids, three bytes each, end-of-text none."""

    n_vocab = V
    token_bytes = np.full(V, 3, dtype=np.uint16)

    def __init__(self, folder):
        self.folder = folder

    def count(self, split):
        return 12 * T + 1

    def read(self, split, start, length):
        return np.random.default_rng(0).integers(0, V, 12 * T + 1)[start : start + length]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A function that runs the stage in `tmp_path` and returns both JSON files."""
    monkeypatch.setattr("x1_pretrain.inference.Tokens", FakeTokens)
    publish_at(tmp_path / "checkpoint", tiny_model())

    def run(formats=("fp32", "bf16", "int8"), prompt=8, new=3, price=0.0, name="out"):
        output, measured = tmp_path / f"{name}.json", tmp_path / f"{name}-measured.json"
        write_inference(
            checkpoint=tmp_path / "checkpoint",
            tokens_dir=tmp_path / "tokens",
            model_id="X1",
            val_tokens=12 * T,
            settings=Inference(formats, prompt, new),
            money=money(price),
            device="cpu",
            output=output,
            measured=measured,
        )
        return json.loads(output.read_text()), json.loads(measured.read_text())

    return run


def check(content, schema):
    text = (SCHEMAS / f"{schema}.schema.json").read_text()
    Draft202012Validator(json.loads(text)).validate(content)


def test_stage_writes_both_files_as_their_schemas_say(stage):
    losses, speeds = stage()
    check(losses, "inference")
    check(speeds, "measured-inference")
    assert losses["N"] == SHAPE.N and losses["val_tokens"] == 12 * T
    assert losses["kv_cache_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    fp32, bf16, int8 = losses["formats"]
    assert fp32["loss_delta_nats"] == 0
    for other in (bf16, int8):
        assert math.exp(abs(other["loss_delta_nats"])) <= 1.002
    assert fp32["weight_bytes"] > 1.9 * bf16["weight_bytes"] > 1.9 * int8["weight_bytes"]
    assert "no KV cache" in speeds["method"]


def test_N_is_counted_in_the_model_that_is_served(stage, tmp_path):
    """SwiGLU's is not the shape's: it has a third matrix, and a width that is a multiple of 8."""
    swiglu = tiny_model(activation="swiglu")
    publish_at(tmp_path / "checkpoint", swiglu)
    losses, _ = stage(formats=("fp32",))
    assert losses["N"] == swiglu.N() != SHAPE.N
    assert losses["N_total"] == swiglu.n_params()


def test_hashed_file_is_the_same_twice(stage, tmp_path):
    stage(name="a")
    stage(name="b")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_delta_is_against_fp32_even_when_it_is_not_listed(stage):
    alone, _ = stage(formats=("int8",), name="a")
    together, _ = stage(name="b")
    assert alone["formats"][0] == together["formats"][2]


def test_price_of_a_token_is_the_hour_over_what_it_decodes(stage):
    _, speeds = stage(formats=("fp32",), price=1.8)
    check(speeds, "measured-inference")
    (row,) = speeds["formats"]
    expected = 1.8 / 3600 / row["decode_tokens_per_s"] * 1e6
    assert row["usd_per_million_tokens"] == pytest.approx(expected)
    assert price_of(100.0, money())["usd_per_million_tokens"] is None


@pytest.mark.parametrize("prompt, new", [(0, 3), (T + 1, 3), (8, 0)])
def test_untimeable_lengths_are_named(stage, prompt, new):
    with pytest.raises(UserError, match="prompt_tokens"):
        stage(prompt=prompt, new=new)


def test_tokens_of_another_tokenizer_are_refused(stage, monkeypatch):
    monkeypatch.setattr(FakeTokens, "n_vocab", V + 1)
    with pytest.raises(UserError, match="301 tokens"):
        stage()


def test_unknown_format_is_refused():
    with pytest.raises(UserError, match="use fp32"):
        converted(tiny_model(), "int2")


def test_conversion_leaves_the_model_alone():
    model = tiny_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    converted(model, "int8")
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_int8_quantises_every_linear_layer_and_not_the_embedding():
    int8 = dict(converted(tiny_model(tied_head=True), "int8").named_parameters())
    assert int8["embedding.weight"].dtype == torch.bfloat16
    kinds = {name for name, p in int8.items() if hasattr(p, "__tensor_flatten__")}
    assert kinds == set(int8) - {"embedding.weight"}


def test_weight_bytes_are_the_parameters_and_a_header():
    model = tiny_model()
    assert 4 * model.n_params() < weight_bytes(model) < 4 * model.n_params() + 2048
    tied = tiny_model(tied_head=True)
    assert 4 * tied.n_params() < weight_bytes(tied) < 4 * tied.n_params() + 2048


def test_loss_is_the_mean_cross_entropy_and_bits_are_per_byte():
    model, w = tiny_model(), windows()
    found = evaluate(model, w, FakeTokens.token_bytes)
    x = torch.from_numpy(w)
    expected = model.loss(x[:, :-1], x[:, 1:].contiguous()).item()
    assert found.nats_per_token == pytest.approx(expected, rel=1e-6)
    assert found.bits_per_byte == pytest.approx(expected / math.log(2) / 3, rel=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 20))
def test_loss_does_not_depend_on_the_chunk(size):
    model, w = tiny_model(), windows()
    with pytest.MonkeyPatch.context() as patch:
        reference = evaluate(model, w, FakeTokens.token_bytes)
        patch.setattr("x1_pretrain.inference.CHUNK_SEQUENCES", size)
        found = evaluate(model, w, FakeTokens.token_bytes)
    assert found.nats_per_token == pytest.approx(reference.nats_per_token, rel=1e-6)


def test_generation_continues_the_prompt_beyond_the_context():
    model, prompt = tiny_model(), torch.arange(T)[None]
    out = generate(model, prompt, 5)
    assert out.shape == (1, T + 5) and torch.equal(out[:, :T], prompt)
    with torch.no_grad():
        assert out[0, T] == model(prompt)[0, -1].argmax()
