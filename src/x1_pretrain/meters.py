"""Honest meters: what the machine can do, measured; what a run did, from durations. Never a guess."""

import time
from dataclasses import dataclass

import torch

from x1_pretrain.determinism import Used
from x1_pretrain.economics.hardware import find_gpu, mfu

# Width of a square matmul, and how many are timed together: long against call overhead, soon done.
PEAK_MATMULS = {"cpu": (1024, 1), "cuda": (8192, 10)}
PEAK_SECONDS = 0.3


@dataclass(frozen=True)
class Peak:
    """FLOP/s to divide by, and how they are known."""

    flops_per_s: float
    reason: str
    measured: bool


@dataclass(frozen=True)
class Utilisation:
    """Speed, and MFU with the peak it is measured against; None where it cannot be known."""

    tokens_per_s: float | None
    mfu: float | None
    mfu_reason: str
    measured_peak_flops: float | None


def measured_peak(used: Used) -> float:
    """FLOP/s of a large square matmul in the run's own precision, the best of a short burst.

    On a GPU several are timed together: one takes less time than its launch and the wait for it.
    """
    size, count = PEAK_MATMULS[used.device]
    generator = torch.Generator().manual_seed(0)  # values as in training: zeros or ones draw less power
    x = torch.randn(size, size, generator=generator).to(used.device, used.dtype)
    best, stop = 0.0, time.perf_counter() + PEAK_SECONDS
    while time.perf_counter() < stop:
        started = time.perf_counter()
        for _ in range(count):
            x @ x
        if used.device == "cuda":
            torch.cuda.synchronize()
        best = max(best, count * 2 * size**3 / (time.perf_counter() - started))
    return best


def peak(used: Used) -> Peak:
    """The data sheet's bf16 figure for a bf16 run on a known GPU, otherwise the matmul peak measured here."""
    reason = f"against the {used.precision_used} matmul peak measured here, not a data sheet"
    if used.device == "cuda" and (gpu := find_gpu(used.name).gpu) and gpu.peak_bf16_flops:
        if used.precision_used == "bf16":
            return Peak(gpu.peak_bf16_flops.value, f"peak of {gpu.name}", measured=False)
        # fp32 reaches a small part of it: an MFU against it would look bad for no fault of the run.
        reason = f"{reason}: the known peak of {gpu.name} is for bf16"
    return Peak(measured_peak(used), reason, measured=True)


def utilisation(peak: Peak, tokens: int, flops: int, seconds: float) -> Utilisation:
    """Speed and MFU from a run's own tokens, counted FLOPs and seconds of training."""
    measured = peak.flops_per_s if peak.measured else None
    if not tokens or not seconds:
        return Utilisation(None, None, "too short: no step after the first was timed", measured)
    tokens_per_s = tokens / seconds
    return Utilisation(
        tokens_per_s, mfu(tokens_per_s, flops / tokens, peak.flops_per_s), peak.reason, measured
    )
