"""A tiny random model and checkpoint, with every switch of the recipe to be had."""

import dataclasses
from pathlib import Path

from tests.conftest import RECIPE
from x1_pretrain.checkpoint import publish
from x1_pretrain.config import as_dict
from x1_pretrain.model import GPT
from x1_pretrain.shape import ModelShape

V, T = 300, 32
SHAPE = ModelShape(n_layer=2, d_model=64, n_head=4, n_kv_head=2, flops=1e9)


def tiny_model(shape: ModelShape = SHAPE, n_vocab: int = V, seq_len: int = T, **recipe) -> GPT:
    """Random weights, the head's too."""
    recipe = dataclasses.replace(RECIPE, **{"zero_init": False, **recipe})
    return GPT(shape, recipe, n_vocab, seq_len).initialise(0)


def publish_at(folder: Path, model: GPT, tokenizer: str = "toy") -> None:
    info = {"shape": as_dict(model.shape), "recipe": as_dict(model.recipe), "n_vocab": model.n_vocab}
    info |= {"seq_len": model.seq_len, "base_width": model.shape.d_model, "tokenizer": tokenizer}
    publish(folder, model, info)
