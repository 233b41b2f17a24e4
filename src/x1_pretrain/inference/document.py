"""What a checkpoint costs to serve: loss and size per number format, speed, dollars per token.

Losses and sizes are the same every time and go to a hashed file; speeds are not and go to another.
"""

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from x1_pretrain.checkpoint import load_model
from x1_pretrain.config import Inference, Money
from x1_pretrain.corpus.loader import Tokens, validation_windows
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.economics.cost import kv_cache_bytes
from x1_pretrain.errors import UserError
from x1_pretrain.inference.formats import Served, converted, file_bytes, memory_bytes
from x1_pretrain.inference.kv_cache import KVCache
from x1_pretrain.inference.loss import Loss, evaluate
from x1_pretrain.inference.prices import public_prices, reason_without_usd, usd_of
from x1_pretrain.inference.speed import REPEATS, speed_of
from x1_pretrain.model import GPT

CALIBRATION_SEQUENCES = 128  # of the training split; twice or eight times as many gave no better int4


def calibration_tokens(tokens: Tokens, seq_len: int) -> Tensor:
    """[n, T]: up to 128 sequences, spread evenly over the training split."""
    last = tokens.count("train") - seq_len
    starts = np.linspace(0, last, min(CALIBRATION_SEQUENCES, last + 1)).astype(int)
    return torch.from_numpy(np.stack([tokens.read("train", int(start), seq_len) for start in starts]))


def write_inference(
    checkpoint: Path,
    tokens_dir: Path,
    model_id: str,
    val_tokens: int,
    settings: Inference,
    money: Money,
    device: str,
    output: Path,
    measured: Path,
) -> None:
    """Evaluate and time a published checkpoint in every format of `settings`; write both files.

    Raises `UserError` if the tokens are of another tokenizer or what is to be timed exceeds a sequence.
    """
    started = time.monotonic()
    model = load_model(checkpoint)[0].to(device)
    tokens = Tokens(tokens_dir)
    if tokens.n_vocab != model.n_vocab:
        raise UserError(
            f"{tokens_dir}: its vocabulary has {tokens.n_vocab} tokens, the checkpoint in "
            f"{checkpoint} was trained with {model.n_vocab}; run the train stage again"
        )
    if settings.tokens > model.seq_len:
        raise UserError(
            f"inference.prompt_tokens: {settings.prompt_tokens} and new_tokens {settings.new_tokens} are "
            f"{settings.tokens} tokens; the checkpoint was trained on sequences of {model.seq_len}"
        )
    windows = validation_windows(tokens, model.seq_len, val_tokens)
    calibration_BT = calibration_tokens(tokens, model.seq_len).to(device)
    reference = evaluate(model, windows, tokens.token_bytes)
    losses_and_sizes, timings = [], []
    for name in settings.formats:
        served = converted(model, name, calibration_BT)
        loss = reference if name == "fp32" else evaluate(served.model, windows, tokens.token_bytes)
        losses_and_sizes.append({"format": name, **_loss(loss, reference), **_sizes(served, model)})
        timings.append({"format": name, "batches": _timings(served.model, windows, settings, money)})
    content = {
        "model": model_id,
        "N": model.N(),
        "N_total": model.n_params(),
        "val_tokens": int(windows[:, 1:].size),
        "context_tokens": model.seq_len,
        "formats": losses_and_sizes,
    }
    write_json(output, content)
    method = (
        f"median of up to {REPEATS}: prompts of {settings.prompt_tokens} tokens are read, then "
        f"{settings.new_tokens} tokens are written greedily after each, with a KV cache"
    )
    speeds = {
        "model": model_id,
        "elapsed_s": time.monotonic() - started,
        "method": method,
        "price_usd_per_hour": money.price_usd_per_hour,
        "usd_reason": reason_without_usd(money),
        "formats": timings,
        "public_prices": public_prices(),
    }
    write_json(measured, speeds)


def _loss(loss: Loss, reference: Loss) -> dict[str, float]:
    delta = loss.nats_per_token - reference.nats_per_token
    return {
        "val_loss_nats": loss.nats_per_token,
        "val_bits_per_byte": loss.bits_per_byte,
        "loss_delta_nats": delta,
        "perplexity_ratio": math.exp(delta),
    }


def _sizes(served: Served, model: GPT) -> dict[str, int]:
    """Bytes of the weights, and of the KV cache by the formula and as its tensors occupy for one sequence."""
    shape, cache = model.shape, KVCache(served.model, batch=1, capacity=model.seq_len)
    value_bytes = cache.layers[0].k_BTKS.element_size()
    head_size = shape.d_model // shape.n_head
    return {
        "file_bytes": file_bytes(served),
        "memory_bytes": memory_bytes(served.model),
        "kv_cache_bytes_per_token": kv_cache_bytes(
            shape.n_layer, shape.n_kv_head, head_size, value_bytes, tokens=1
        ),
        "kv_cache_bytes": cache.n_bytes,
    }


def _timings(
    model: GPT, windows: np.ndarray, settings: Inference, money: Money
) -> list[dict[str, float | None]]:
    rows: list[dict[str, Any]] = []
    for batch in settings.batch_sizes:
        speed = speed_of(model, windows, batch, settings.prompt_tokens, settings.new_tokens)
        rows.append({**asdict(speed), **usd_of(speed, money)})
    return rows
