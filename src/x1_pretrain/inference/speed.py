"""Tokens per second: reading prompts, and writing after them with a KV cache."""

import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

from x1_pretrain.inference.generate import continuation, greedy
from x1_pretrain.model import GPT

REPEATS = 5  # of a timing, at most; the median is reported
TIMING_S = 1.5


@dataclass(frozen=True)
class Speed:
    """Of all `batch` sequences together."""

    batch: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float


def speed_of(model: GPT, windows: np.ndarray, batch: int, prompt_tokens: int, new_tokens: int) -> Speed:
    """How fast prompts, the beginnings of `windows` [n, T], are read, and greedy tokens written after them.

    The first token comes with the reading, so that writing is `new_tokens` steps after it. Repeats stop
    early once they have taken `TIMING_S`: a busy machine must not hold the study up. The first is left out
    where there is another.
    """
    device = model.cos_TS.device
    prompt_BT = torch.from_numpy(windows[np.arange(batch) % len(windows), :prompt_tokens]).to(device)
    prefill_s: list[float] = []
    decode_s: list[float] = []
    while len(prefill_s) < 1 + REPEATS and sum(prefill_s) + sum(decode_s) < TIMING_S:
        started = _now(device)
        tokens = continuation(model, prompt_BT, greedy)
        next(tokens)
        read = _now(device)
        for _ in range(new_tokens):
            next(tokens)
        prefill_s.append(read - started)
        decode_s.append(_now(device) - read)
    prefill, decode = (statistics.median(seconds[1:] or seconds) for seconds in (prefill_s, decode_s))
    return Speed(batch, batch * prompt_tokens / prefill, batch * new_tokens / decode)


def _now(device: torch.device) -> float:
    """Seconds of a monotonic clock, once the GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
