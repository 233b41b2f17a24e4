"""How fast and how large: tokens/s of real training steps, MFU against two peaks, peak memory."""

import gc
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from gpu_checks.report import Findings
from gpu_checks.scale import Case
from gpu_checks.trainee import Trainee, batches
from x1_pretrain import memory, meters
from x1_pretrain.config import Device
from x1_pretrain.determinism import Used, setup
from x1_pretrain.economics.flops import training_flops_per_token
from x1_pretrain.economics.hardware import mfu

WARM_STEPS = 3  # compilation, caches, the optimizer's state
BURST = 10  # matmuls between two waits for the device, so that calling them takes no time of their own
PEAK_SECONDS = 0.7
ALIGNED = 64  # columns; an odd number of them keeps tensor cores from reading whole vectors


def synchronise(used: Used) -> None:
    """Wait for the device."""
    if used.device == "cuda":
        torch.cuda.synchronize()


def matmul_peak(used: Used, rows: int, inner: int, columns: int) -> float:
    """FLOP/s of x W^T on random values (constant ones cost less power), the best burst."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, inner, generator=generator).to(used.device, used.dtype)
    weight = torch.randn(columns, inner, generator=generator).to(used.device, used.dtype)
    out = torch.empty(rows, columns, dtype=used.dtype, device=used.device)
    best_s, stop = float("inf"), time.perf_counter() + PEAK_SECONDS
    while time.perf_counter() < stop:
        synchronise(used)
        clock = time.perf_counter()
        for _ in range(BURST):
            torch.mm(x, weight.mT, out=out)
        synchronise(used)
        best_s = min(best_s, time.perf_counter() - clock)
    return BURST * 2 * rows * inner * columns / best_s


def peaks(
    device: Device, size: int, head: tuple[int, int, int], band: tuple[float, float] | None
) -> Findings:
    """The matmul peak, the table's, and what the trainer's meter would say, held to `band`.

    Also what a head (N, D, V) reaches, with its vocabulary as it is and padded: a reason to pad, or not to.
    """
    used, (rows, inner, n_vocab) = setup(device, 0), head
    measured, meter, table = (
        matmul_peak(used, size, size, size),
        meters.measured_peak(used),
        meters.peak(used),
    )
    padded = -(-n_vocab // ALIGNED) * ALIGNED
    return Findings.of(
        {
            "measured_peak": measured,
            "table_peak": None if table.measured else table.flops_per_s,
            "table_reason": table.reason,
            "meter_ratio": meter / measured,
            f"head_{n_vocab}": matmul_peak(used, rows, inner, n_vocab),
            f"head_{padded}": matmul_peak(used, rows, inner, padded),
        },
        at_most={"meter_ratio": band[1]} if band else {},
        at_least={"meter_ratio": band[0]} if band else {},
    )


def speed(
    case: Case,
    device: Device,
    steps: int,
    left_s: Callable[[], float],
    measured_peak: float | None,
) -> Findings:
    """At most `steps` timed steps, fewer if the time is over; the micro-batch is halved until it fits."""
    halved: list[int] = []
    while True:
        try:
            found = _speed(case, device, steps, left_s, measured_peak)
            return Findings({**found, "micro_batch": case.train.micro_batch, "out_of_memory_at": halved})
        except (MemoryError, RuntimeError) as error:
            if not memory.is_out_of_memory(error) or case.train.micro_batch == 1:
                raise
        # Outside of `except`, which holds the frames, and with them the memory, of the attempt.
        halved.append(case.train.micro_batch)
        case = replace(case, train=replace(case.train, micro_batch=case.train.micro_batch // 2))


def _speed(
    case: Case, device: Device, steps: int, left_s: Callable[[], float], measured_peak: float | None
) -> dict[str, object]:
    torch.compiler.reset()  # with its graphs goes the last reference to an earlier model
    gc.collect()
    if device.kind == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainee, loaded = Trainee.of(case, device), batches(case, 2)
    used, shape, clock = trainee.used, case.shape, time.perf_counter()
    loaded = [batch.to(used.device) for batch in loaded]
    trainee.step(loaded[0])
    first_step_s = time.perf_counter() - clock
    for step in range(1, WARM_STEPS):
        trainee.step(loaded[step % 2])
    synchronise(used)
    clock, timed = time.perf_counter(), 0
    while timed < steps and (not timed or left_s() > 0):
        trainee.step(loaded[timed % 2])
        timed += 1
    synchronise(used)
    step_s = (time.perf_counter() - clock) / timed
    tokens_per_s = case.train.batch_tokens / step_s
    sizes = (shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head, case.n_vocab, case.train.seq_len)
    flops_per_token = training_flops_per_token(*sizes, case.recipe.activation)
    table = meters.peak(used)
    return {
        "tokens_per_s": tokens_per_s,
        "mfu": None if table.measured else mfu(tokens_per_s, flops_per_token, table.flops_per_s),
        "mfu_of_measured_peak": measured_peak and mfu(tokens_per_s, flops_per_token, measured_peak),
        "peak_memory_bytes": memory.peak_memory_bytes(used),
        "step_s": step_s,
        "timed_steps": timed,
        "batch_sequences": case.train.batch_sequences,
        "first_step_s": first_step_s,
        "flops_per_token": flops_per_token,
        "attention": used.attention_used,
        "gradient_checkpointing": device.gradient_checkpointing,
    }
