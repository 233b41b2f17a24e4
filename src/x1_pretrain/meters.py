"""Honest meters: what the machine can do, measured; what a run did, from durations. Never a guess."""

import time
from dataclasses import dataclass

import torch

from x1_pretrain.determinism import Used
from x1_pretrain.economics.hardware import find_gpu, mfu

PEAK_SIZE = 1024  # a square matmul of 2 GFLOP: long against call overhead, short against patience
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
    """FLOP/s of a large square matmul in the run's own precision, the best of a short burst."""
    x = torch.ones(PEAK_SIZE, PEAK_SIZE, dtype=used.dtype, device=used.device)
    best, stop = 0.0, time.perf_counter() + PEAK_SECONDS
    while time.perf_counter() < stop:
        started = time.perf_counter()
        y = x @ x
        if used.device == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * PEAK_SIZE**3 / (time.perf_counter() - started))
        x = y / PEAK_SIZE  # stays all ones
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
