"""What a checkpoint costs to serve: loss and size per number format, speed, dollars per token.

Losses and sizes are the same every time and go to a hashed file; speeds are not and go to another.
"""

import copy
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from x1_pretrain.checkpoint import load_model
from x1_pretrain.config import Inference, Money
from x1_pretrain.corpus.loader import Tokens, validation_windows
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.economics.cost import kv_cache_bytes, usd_per_million_tokens
from x1_pretrain.errors import UserError
from x1_pretrain.model import GPT

CHUNK_SEQUENCES = 16  # of a validation pass: bounds the memory of the logits
REPEATS = 5  # of a timing, at most; the median is reported
TIMING_S = 2.0
KV_BYTES_PER_VALUE = 2  # keys and values are cached in bf16


@dataclass(frozen=True)
class Loss:
    """Over all targets: nats per token, and bits per UTF-8 byte of the text they stand for."""

    nats_per_token: float
    bits_per_byte: float


def converted(model: GPT, number_format: str) -> GPT:
    """A copy of an fp32 model in `fp32`, `bf16` or `int8`, ready to evaluate.

    `int8` is weight-only: every linear layer's weights as int8 with a scale per output row, the
    rest in bf16. Embeddings stay bf16, and a tied head is untied by it. Raises `UserError`.
    """
    copied = copy.deepcopy(model).eval()
    if number_format == "fp32":
        return copied.float()
    if number_format == "bf16":
        return copied.bfloat16()
    if number_format == "int8":
        return _quantized(copied.bfloat16())
    raise UserError(f"inference.formats: {number_format!r} is unknown; use fp32, bf16 or int8")


def _quantized(model: GPT) -> GPT:
    # Optional CUDA extensions are not needed here; without these two lines their absence is logged.
    os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
    loggers = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    quantize_(model, Int8WeightOnlyConfig())
    return model


def weight_bytes(model: nn.Module) -> int:
    """Size of the weights as a safetensors file: int8 values and their scales counted as stored."""
    stored = {
        name: part.detach().cpu().contiguous()
        for parameter_name, parameter in model.named_parameters()
        for name, part in _plain_tensors(parameter_name, parameter)
    }
    return len(save(stored))


def _plain_tensors(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A tensor, or the plain tensors a quantised one is made of (torch's subclass protocol)."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        inner = getattr(tensor, part)
        if inner is not None:
            yield from _plain_tensors(f"{name}.{part}", inner)


@torch.no_grad()
def evaluate(model: GPT, windows: np.ndarray, token_bytes: np.ndarray) -> Loss:
    """Loss over `windows`, int64 [n, T + 1], whose tokens stand for `token_bytes` [n_vocab] bytes.

    Sums are taken in fp64, so that the number of windows in a chunk does not matter much.
    """
    device = next(model.parameters()).device
    nats = 0.0
    for begin in range(0, len(windows), CHUNK_SEQUENCES):
        chunk_BT = torch.from_numpy(windows[begin : begin + CHUNK_SEQUENCES]).to(device)
        losses = model.loss(chunk_BT[:, :-1], chunk_BT[:, 1:].contiguous(), reduction="none")
        nats += losses.double().sum().item()
    targets = windows[:, 1:]
    text_bytes = int(token_bytes[targets].sum(dtype=np.int64))
    return Loss(nats / targets.size, nats / math.log(2) / text_bytes)


@torch.no_grad()
def generate(model: GPT, prompt_BT: Tensor, new_tokens: int) -> Tensor:
    """Greedy continuation, [B, T + new_tokens]; each token recomputes the last seq_len tokens."""
    tokens_BT = prompt_BT
    for _ in range(new_tokens):
        logits_BTV = model(tokens_BT[:, -model.seq_len :])
        tokens_BT = torch.cat((tokens_BT, logits_BTV[:, -1].argmax(-1, keepdim=True)), dim=1)
    return tokens_BT


def median_seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Median duration of `work`, the first call left out where there is another. Waits for a GPU.

    Repeats stop early once they have taken `TIMING_S`: a busy machine must not hold the study up.
    """
    durations: list[float] = []
    while len(durations) < 1 + REPEATS and sum(durations) < TIMING_S:
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        durations.append(time.perf_counter() - started)
    return statistics.median(durations[1:] or durations)


@torch.no_grad()
def speeds(model: GPT, prompt_T: np.ndarray, new_tokens: int) -> tuple[float, float]:
    """Tokens per second of one sequence: reading the prompt, and writing `new_tokens` after it."""
    device = next(model.parameters()).device
    prompt_BT = torch.from_numpy(prompt_T)[None].to(device)
    prefill_s = median_seconds(lambda: model(prompt_BT), device)
    decode_s = median_seconds(lambda: generate(model, prompt_BT, new_tokens), device)
    return prompt_BT.numel() / prefill_s, new_tokens / decode_s


def price_of(tokens_per_s: float, money: Money) -> dict[str, Any]:
    """Dollars per million decoded tokens, or None and why."""
    if money.price_usd_per_hour == 0:
        return {
            "usd_per_million_tokens": None,
            "usd_reason": f"the profile's price is 0 $/h ({money.price_source})",
        }
    usd = usd_per_million_tokens(money.price_usd_per_hour, tokens_per_s)
    return {"usd_per_million_tokens": usd, "usd_reason": None}


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

    Raises `UserError` if the tokens are of another tokenizer or the prompt exceeds a sequence.
    """
    started = time.monotonic()
    model, _ = load_model(checkpoint)
    model = model.to(device)
    tokens = Tokens(tokens_dir)
    if tokens.n_vocab != model.n_vocab:
        raise UserError(
            f"{tokens_dir}: its vocabulary has {tokens.n_vocab} tokens, the checkpoint in "
            f"{checkpoint} was trained with {model.n_vocab}; run the train stage again"
        )
    if not 1 <= settings.prompt_tokens <= model.seq_len or settings.new_tokens < 1:
        raise UserError(
            f"inference.prompt_tokens: {settings.prompt_tokens} with new_tokens "
            f"{settings.new_tokens} cannot be timed; use 1 to {model.seq_len} and at least 1"
        )
    windows = validation_windows(tokens, model.seq_len, val_tokens)
    prompt_T = windows[0, : settings.prompt_tokens]
    losses: dict[str, Loss] = {}
    sizes: dict[str, int] = {}
    timings = []
    for number_format in settings.formats:
        candidate = converted(model, number_format)
        losses[number_format] = evaluate(candidate, windows, tokens.token_bytes)
        sizes[number_format] = weight_bytes(candidate)
        prefill, decode = speeds(candidate, prompt_T, settings.new_tokens)
        timings.append(
            {
                "format": number_format,
                "prefill_tokens_per_s": prefill,
                "decode_tokens_per_s": decode,
                **price_of(decode, money),
            }
        )
    reference = losses.get("fp32") or evaluate(model, windows, tokens.token_bytes)
    shape = model.shape
    write_json(
        output,
        {
            "model": model_id,
            "N": model.N(),
            "N_total": model.n_params(),
            "val_tokens": int(windows[:, 1:].size),
            "formats": [
                {
                    "format": number_format,
                    "val_loss_nats": loss.nats_per_token,
                    "val_bits_per_byte": loss.bits_per_byte,
                    "loss_delta_nats": loss.nats_per_token - reference.nats_per_token,
                    "weight_bytes": sizes[number_format],
                }
                for number_format, loss in losses.items()
            ],
            "kv_cache_bytes_per_token": kv_cache_bytes(
                shape.n_layer,
                shape.n_kv_head,
                shape.d_model // shape.n_head,
                KV_BYTES_PER_VALUE,
                tokens=1,
            ),
        },
    )
    method = (
        f"median of up to {REPEATS}, one sequence: prefill of {settings.prompt_tokens} tokens, then "
        f"{settings.new_tokens} decoded greedily, the context recomputed for each (no KV cache)"
    )
    write_json(
        measured,
        {
            "model": model_id,
            "elapsed_s": time.monotonic() - started,
            "method": method,
            "price_usd_per_hour": money.price_usd_per_hour,
            "formats": timings,
        },
    )
