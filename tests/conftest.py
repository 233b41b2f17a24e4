"""Shared stand-ins: a folder of synthetic token shards and the spec of a run that takes a second."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from x1_pretrain.config import Device, Money, Storage, Train
from x1_pretrain.corpus.documents import write_lines
from x1_pretrain.corpus.shards import write_tokens
from x1_pretrain.corpus.tokenizer import GPT2Tokenizer
from x1_pretrain.run_spec import RunSpec
from x1_pretrain.schedule import schedule_of
from x1_pretrain.shape import ModelShape, Recipe


@pytest.fixture(scope="session")
def synthetic_tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 70,000 tokens, 257 ids, text from a small random grammar of words."""
    rng = np.random.default_rng(0)
    words = ["".join(chr(97 + c) for c in rng.integers(0, 26, size=rng.integers(2, 7))) for _ in range(60)]
    following = rng.integers(0, len(words), size=(len(words), 3))
    documents, word = [], 0
    for n in range(400):
        text = []
        for choice in rng.integers(0, 3, size=40):
            word = following[word, choice]
            text.append(words[word])
        split = "val" if n % 8 == 0 else "train"
        documents.append(json.dumps({"id": f"toy/{n}", "text": " ".join(text), "split": split}))
    folder = tmp_path_factory.mktemp("synthetic")
    write_lines(folder / "documents/toy.jsonl.zst", documents)
    ranks = {bytes([byte]): byte for byte in range(256)}
    write_tokens(folder / "documents", GPT2Tokenizer("gpt2:257", ranks), folder / "tokens", 10**8)
    return folder / "tokens"


SHAPE = ModelShape(n_layer=2, d_model=16, n_head=2, n_kv_head=1, flops=1e9)
RECIPE = Recipe(
    optimizer="muon",
    schedule="wsd",
    batch_ramp=False,
    activation="relu2",
    position="rope",
    qk_norm=True,
    value_residual=False,
    token_shift=False,
    bigram_rows=None,
    value_embeddings=False,
    embedding_shortcut=False,
    window_warmup=False,
    zero_init=True,
    tied_head=False,
    logit_softcap=None,
    z_loss=None,
    mup=False,
)
TRAIN = Train(
    seq_len=32,
    batch_sequences=8,
    micro_batch=8,
    warmup_steps=3,
    cooldown_fraction=0.25,
    muon_lr=0.02,
    adamw_lr=0.004,
    embedding_lr=0.004,
    base_width=128,
    base_steps=100,
    horizon_exponent=0.0,
    weight_decay=0.0,
    momentum=0.95,
    beta1=0.9,
    beta2=0.95,
    eps=1e-8,
    grad_clip=1.0,
    non_finite="stop",
    on_spike="observe",
    batch_ramp_steps=2,
    noise_batches=0,
    val_tokens=512,
    evaluations=2,
    checkpoint_every=4,
)
DEVICE = Device(
    kind="cpu", threads=1, precision="fp32", compile=False, attention="auto", gradient_checkpointing=False
)
NO_STORAGE = Storage(
    gb=0.0, usd_per_gb_month=0.0, egress_gb=0.0, egress_usd_per_gb=0.0, source="a test", date="2026-11-30"
)
MONEY = Money(
    project="test",
    currency="USD",
    gpu=None,
    price_usd_per_hour=0.0,
    price_source="a test",
    price_date="2026-11-30",
    storage=NO_STORAGE,
    assumed_mfu=0.3,
    cap_usd=1.0,
    dead_man_minutes=30.0,
    stop_command=None,
    wall_clock_in_documents=False,
)


@pytest.fixture
def small_spec() -> RunSpec:
    """24 steps with one cool-down branch at the half."""
    return RunSpec(
        stage="test",
        output="test",
        run_id="small-seed0",
        profile="test",
        model="small",
        seed=0,
        shape=SHAPE,
        recipe=RECIPE,
        train=TRAIN,
        device=DEVICE,
        money=MONEY,
        schedule=schedule_of(TRAIN, RECIPE, 24, (0.5, 1.0)),
        eval_every=12,
    )


@pytest.fixture
def change():
    """change(spec, "train", micro_batch=2): a copy with keys of one section (or of itself) replaced."""

    def changed(spec: RunSpec, section: str | None = None, **values) -> RunSpec:
        if section is None:
            return dataclasses.replace(spec, **values)
        part = dataclasses.replace(getattr(spec, section), **values)
        return dataclasses.replace(spec, **{section: part})

    return changed
