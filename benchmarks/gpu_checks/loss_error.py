"""The loss in chunks, as large vocabularies have it, against the definition in fp64, forward and backward."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_checks.agreement import relative_error
from gpu_checks.report import Findings
from x1_pretrain.config import Device
from x1_pretrain.cross_entropy import linear_cross_entropy
from x1_pretrain.determinism import setup

SEED = 0
SOFTCAP, Z_LOSS = 2.0, 1e-4
CHUNKS = 4
# Relative errors (L2) of the loss and its two gradients, the largest. On the CPU they were 3e-7 and 3e-3.
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}


def definition(x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy, and what is differentiated: the same with the z-loss."""
    logits_NV = SOFTCAP * torch.tanh(F.linear(x_ND, weight_VD) / SOFTCAP)
    loss = F.cross_entropy(logits_NV, targets_N)
    return loss, loss + Z_LOSS * logits_NV.logsumexp(dim=-1).square().mean()


def loss_error(device: Device, sizes: tuple[int, int, int]) -> Findings:
    """The largest error of N tokens of width D with V logits, in fp32 and in bf16."""
    N, D, V = sizes
    generator = torch.Generator().manual_seed(SEED)
    inputs = [torch.randn(N, D, generator=generator), torch.randn(V, D, generator=generator) / D**0.5]
    targets_N = torch.randint(V, (N,), generator=generator).to(device.kind)

    def leaves(dtype: torch.dtype) -> list[Tensor]:
        return [x.to(device.kind, dtype, copy=True).requires_grad_() for x in inputs]

    exact = leaves(torch.float64)
    wanted, objective = definition(*exact, targets_N)
    objective.backward()
    errors = {}
    for precision in TOLERANCE:
        used = setup(replace(device, precision=precision, attention="sdpa"), SEED)
        chunk_bytes = 4 * V * N // CHUNKS

        def chunked(x_ND: Tensor, weight_VD: Tensor, chunk_bytes: int = chunk_bytes) -> Tensor:
            return linear_cross_entropy(x_ND, weight_VD, targets_N, "mean", SOFTCAP, Z_LOSS, chunk_bytes)

        torch.compiler.reset()
        function = torch.compile(chunked, dynamic=False) if used.compile_used else chunked
        found = leaves(torch.float32)
        with used.autocast():
            loss = function(*found)
        loss.backward()
        pairs = [
            (loss.detach(), wanted.detach()),
            *((a.grad, b.grad) for a, b in zip(found, exact, strict=True)),
        ]
        errors[precision] = max(relative_error(a, b) for a, b in pairs)
    return Findings.of(errors, TOLERANCE)
