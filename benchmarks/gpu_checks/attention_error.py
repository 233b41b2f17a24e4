"""Each attention library against softmax(q k^T) v written out in fp64, forward and backward."""

from collections.abc import Callable

import torch
from torch import Tensor

from gpu_checks.agreement import relative_error
from gpu_checks.report import Findings
from x1_pretrain.attention import Library, Window, attend

SEED = 0
# Relative L2 errors of y, dq, dk, dv. The inputs are those of the reference, rounding included. On the CPU
# SDPA gave 4e-7 in fp32 and 5e-3 in bf16; one key too many in the window of 102 was an error of 7e-2.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def explicit(q_BTHS: Tensor, k_BTKS: Tensor, v_BTKS: Tensor, window: int | None) -> Tensor:
    """The definition: a key/value head for H / K heads, keys j with i - window < j <= i."""
    _, T, H, S = q_BTHS.shape
    repeats = H // k_BTKS.size(2)
    k_BTHS, v_BTHS = (x.repeat_interleave(repeats, dim=2) for x in (k_BTKS, v_BTKS))
    scores_BHTT = torch.einsum("bihs,bjhs->bhij", q_BTHS, k_BTHS) / S**0.5
    i, j = torch.meshgrid(torch.arange(T), torch.arange(T), indexing="ij")
    hidden_TT = (j > i) | (j <= i - (window or T))
    scores_BHTT = scores_BHTT.masked_fill(hidden_TT.to(q_BTHS.device), -torch.inf)
    return torch.einsum("bhij,bjhs->bihs", scores_BHTT.softmax(dim=-1), v_BTHS)


def with_gradients(
    attention: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: list[Tensor], upstream_BTHS: Tensor
) -> list[Tensor]:
    """y, dq, dk, dv for a gradient of y."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y_BTHS = attention(*leaves)
    return [y_BTHS.detach(), *torch.autograd.grad(y_BTHS, leaves, upstream_BTHS.to(y_BTHS.dtype))]


def attention_error(library: Library, sizes: tuple[int, int, int, int], device: str) -> Findings:
    """Errors of a library for all heads and all keys, and with a third of the key heads and a window."""
    B, T, H, S = sizes
    errors, limits = {}, {}
    for heads, window in ((H, None), (H // 3, max(2, T // 5))):
        for dtype in (torch.float32, torch.bfloat16):
            if library == "flash" and dtype == torch.float32:
                continue  # it has no such kernel
            generator = torch.Generator().manual_seed(SEED)
            shapes = [(B, T, n, S) for n in (H, heads, heads, H)]
            *inputs, upstream = (torch.randn(s, generator=generator).to(device, dtype) for s in shapes)
            found = with_gradients(_library(library, T, window, device), inputs, upstream)
            exact = with_gradients(
                lambda q, k, v, window=window: explicit(q, k, v, window),
                [x.double() for x in inputs],
                upstream.double(),
            )
            name = f"{str(dtype).removeprefix('torch.')}_{'all' if window is None else 'window'}"
            errors[name] = max(relative_error(a, b) for a, b in zip(found, exact, strict=True))
            limits[name] = TOLERANCE[dtype]
    return Findings.of(errors, limits)


def _library(
    library: Library, T: int, window: int | None, device: str
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The library as the model calls it; FlexAttention is compiled with its mask, or it would be another."""
    reach = Window(T, movable=window is not None).to(device)
    reach.set(window)

    def attention(q_BTHS: Tensor, k_BTKS: Tensor, v_BTKS: Tensor) -> Tensor:
        return attend(q_BTHS, k_BTKS, v_BTKS, library, reach.mask(library, T))

    torch.compiler.reset()
    return torch.compile(attention, dynamic=False) if library == "flex" else attention
