"""A tiny random checkpoint through the whole of the inference stage; the trained one's perplexity."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from tests.conftest import MONEY
from tests.inference.models import SHAPE, T, V, publish_at, tiny_model
from x1_pretrain import paths
from x1_pretrain.checkpoint import load_model
from x1_pretrain.config import Inference
from x1_pretrain.corpus.loader import Tokens, validation_windows
from x1_pretrain.errors import UserError
from x1_pretrain.inference.document import calibration_tokens, write_inference
from x1_pretrain.inference.formats import converted, file_bytes
from x1_pretrain.inference.loss import evaluate
from x1_pretrain.shape import ModelShape

ROOT = Path(__file__).resolve().parents[2]
FORMATS = ("fp32", "bf16", "int8", "int4")


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
    monkeypatch.setattr("x1_pretrain.inference.document.Tokens", FakeTokens)
    monkeypatch.setattr("x1_pretrain.inference.speed.TIMING_S", 0.01)
    publish_at(tmp_path / "checkpoint", tiny_model())

    def run(formats=FORMATS, prompt=8, new=3, batches=(1, 3), price=0.0, name="out"):
        output, measured = tmp_path / f"{name}.json", tmp_path / f"{name}-measured.json"
        write_inference(
            checkpoint=tmp_path / "checkpoint",
            tokens_dir=tmp_path / "tokens",
            model_id="X1",
            val_tokens=12 * T,
            settings=Inference(formats, prompt, new, batches),
            money=money(price),
            device="cpu",
            output=output,
            measured=measured,
        )
        return json.loads(output.read_text()), json.loads(measured.read_text())

    return run


def check(content, schema):
    text = (ROOT / paths.SCHEMAS / f"{schema}.schema.json").read_text()
    Draft202012Validator(json.loads(text)).validate(content)


def test_stage_writes_both_files_as_their_schemas_say(stage):
    losses, speeds = stage()
    check(losses, "inference")
    check(speeds, "measured-inference")
    assert losses["N"] == SHAPE.N and losses["val_tokens"] == 12 * T
    fp32, bf16, int8, _ = losses["formats"]
    assert fp32["loss_delta_nats"] == 0
    for other in (bf16, int8):
        assert math.exp(abs(other["loss_delta_nats"])) <= 1.002
    for row in losses["formats"]:
        assert row["perplexity_ratio"] == pytest.approx(math.exp(row["loss_delta_nats"]))
        assert row["kv_cache_bytes"] == T * row["kv_cache_bytes_per_token"]
    assert bf16["kv_cache_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert fp32["kv_cache_bytes_per_token"] == 2 * bf16["kv_cache_bytes_per_token"]
    for key in ("file_bytes", "memory_bytes"):
        sizes = [row[key] for row in losses["formats"]]
        assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4
    assert [row["batch"] for row in speeds["formats"][0]["batches"]] == [1, 3]
    assert "with a KV cache" in speeds["method"]
    assert speeds["public_prices"]["date"] and speeds["public_prices"]["prices"]


def test_N_is_counted_in_the_model_that_is_served(stage, tmp_path):
    """SwiGLU's is not the shape's: it has a third matrix, and a width that is a multiple of 8."""
    swiglu = tiny_model(activation="swiglu")
    publish_at(tmp_path / "checkpoint", swiglu)
    losses, _ = stage(formats=("fp32",))
    assert losses["N"] == swiglu.N() != SHAPE.N
    assert losses["N_total"] == swiglu.n_params()


@pytest.mark.parametrize("d_model, n_head", [(24, 2), (48, 1), (80, 1)])
def test_widths_that_are_no_multiple_of_the_group_are_served_too(stage, tmp_path, d_model, n_head):
    shape = ModelShape(n_layer=1, d_model=d_model, n_head=n_head, n_kv_head=1, flops=1e9)
    publish_at(tmp_path / "checkpoint", tiny_model(shape, tied_head=True))
    losses, _ = stage(formats=("int8", "int4"))
    int8, int4 = losses["formats"]
    assert int4["perplexity_ratio"] < 1.1
    assert int4["file_bytes"] < int8["file_bytes"]


def test_hashed_file_is_the_same_twice(stage, tmp_path):
    stage(name="a")
    stage(name="b")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_delta_is_against_fp32_even_when_it_is_not_listed(stage):
    alone, _ = stage(formats=("int8",), name="a")
    together, _ = stage(name="b")
    assert alone["formats"][0] == together["formats"][2]


def test_price_of_a_token_is_the_hour_over_what_is_read_or_written(stage):
    _, speeds = stage(formats=("fp32",), price=1.8)
    check(speeds, "measured-inference")
    assert speeds["usd_reason"] is None
    for row in speeds["formats"][0]["batches"]:
        for kind, rate in (("input", "prefill"), ("output", "decode")):
            expected = 1.8 / 3600 / row[f"{rate}_tokens_per_s"] * 1e6
            assert row[f"usd_per_million_{kind}_tokens"] == pytest.approx(expected)


def test_a_machine_that_costs_nothing_has_no_price_of_a_token(stage):
    _, speeds = stage(formats=("fp32",))
    assert "0 $/h (a price list)" in speeds["usd_reason"]
    assert speeds["formats"][0]["batches"][0]["usd_per_million_output_tokens"] is None


def test_more_tokens_than_a_sequence_are_refused(stage):
    with pytest.raises(UserError, match="prompt_tokens: 30 and new_tokens 3 are 33 tokens"):
        stage(prompt=T - 2, new=3)


def test_tokens_of_another_tokenizer_are_refused(stage, monkeypatch):
    monkeypatch.setattr(FakeTokens, "n_vocab", V + 1)
    with pytest.raises(UserError, match="301 tokens"):
        stage()


@pytest.mark.parametrize("available, expected", [(T, 1), (T + 4, 5), (100 * T, 128)])
def test_calibration_is_spread_over_the_training_split(available, expected):
    class Counting:
        def count(self, split):
            return {"train": available}[split]

        def read(self, split, start, length):
            return np.arange(start, start + length)

    found = calibration_tokens(Counting(), T)
    assert found.shape == (expected, T)
    assert found[0, 0] == 0 and found[-1, -1] == (available - 1 if expected > 1 else T - 1)


@pytest.mark.slow
def test_the_trained_checkpoint_loses_as_little_as_promised():
    """int8 at most 0.2% of perplexity, int4 (group 32) 2%; a quarter of the validation tokens shows it."""
    checkpoint, data = ROOT / paths.CHECKPOINT, ROOT / paths.TOKENS
    if not (checkpoint / "model.safetensors").is_file() or not (data / "index.json").is_file():
        pytest.skip("the checkpoint and its tokens are not here: dvc pull, or dvc repro")
    model, tokens = load_model(checkpoint)[0], Tokens(data)
    windows = validation_windows(tokens, model.seq_len, 2**15)
    calibration = calibration_tokens(tokens, model.seq_len)
    served = {name: converted(model, name, calibration) for name in FORMATS}
    loss = {
        name: evaluate(of.model, windows, tokens.token_bytes).nats_per_token for name, of in served.items()
    }
    ratio = {name: math.exp(nats - loss["fp32"]) for name, nats in loss.items()}
    assert 0.99 < ratio["int8"] <= 1.002
    assert 0.99 < ratio["int4"] <= 1.02
    sizes = [file_bytes(served[name]) for name in FORMATS]
    assert sizes == sorted(sizes, reverse=True)


def test_the_committed_study_loses_as_little_as_promised():
    path = ROOT / paths.INFERENCE
    rows = {row["format"]: row for row in json.loads(path.read_text())["formats"]}
    assert rows["int8"]["perplexity_ratio"] <= 1.002
    assert rows["int4"]["perplexity_ratio"] <= 1.02
    assert rows["int4"]["file_bytes"] < rows["int8"]["file_bytes"] < rows["bf16"]["file_bytes"]
