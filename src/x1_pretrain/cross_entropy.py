"""Cross-entropy of a linear head whose logits need not exist all at once.

B * T * V logits are the largest tensor of a small model by far (32 x 1024 tokens of GPT-2's vocabulary: 6.6
GB in fp32, and as much again for their gradient). Above a size they are taken in chunks of tokens, and the
gradient of a chunk is computed while its logits are there, so that nothing is recomputed (Liger Kernel, Hsu
et al. 2024).
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]

# Of the fp32 logits of a chunk; what fits is left to autograd. On CPU 64 MB of logits (B * T = 4096,
# D = 128) in chunks of 16 MB take head and loss, forward and backward, 44 ms, whole 64: what one loop writes
# is still in the cache for the next. 16 MB of logits gain nothing from chunks, and would compile longer.
CHUNK_BYTES = {"cpu": 2**24, "cuda": 2**30}


def softcapped(logits: Tensor, cap: float | None) -> Tensor:
    """cap * tanh(logits / cap): smooth, and within +-cap (Gemma 2, section 2)."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def linear_cross_entropy(
    x_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    reduction: Reduction = "mean",
    softcap: float | None = None,
    z_loss: float | None = None,
    chunk_bytes: int | None = None,
) -> Tensor:
    """-log softmax(softcapped(x W^T))[target] in nats, a scalar, or [N] for "none"; computed in fp32.

    `z_loss` w adds the gradient, but not the value, of w * (log Z)^2 per token, Z the sum of the
    exponentials (PaLM, Chowdhery et al. 2022, section 5): it keeps log Z near zero, and what is reported
    stays the cross-entropy. `chunk_bytes` bounds the fp32 logits that exist at a time,
    `CHUNK_BYTES` of the device unless given.
    """
    chunk = max(1, (chunk_bytes or CHUNK_BYTES[x_ND.device.type]) // (4 * weight_VD.size(0)))
    if x_ND.size(0) <= chunk:
        return _plain(x_ND, weight_VD, targets_N, reduction, softcap, z_loss)
    if reduction == "none":  # gives every token its own gradient, which only autograd can wait for
        chunks = zip(x_ND.split(chunk), targets_N.split(chunk), strict=True)
        return torch.cat([_plain(x, weight_VD, t, reduction, softcap, z_loss) for x, t in chunks])
    total = _Chunked.apply(x_ND, weight_VD, targets_N, softcap, z_loss, chunk)
    return total / x_ND.size(0) if reduction == "mean" else total


def _plain(
    x_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    reduction: Reduction,
    softcap: float | None,
    z_loss: float | None,
) -> Tensor:
    logits_NV = softcapped(F.linear(x_ND, weight_VD).float(), softcap)
    loss = F.cross_entropy(logits_NV, targets_N, reduction=reduction)
    if z_loss is None:
        return loss
    reduce = {"mean": torch.mean, "sum": torch.sum, "none": torch.clone}[reduction]
    z = reduce(z_loss * logits_NV.logsumexp(dim=-1).square())
    return loss + (z - z.detach())


class _Chunked(torch.autograd.Function):
    """The sum over tokens; the gradients are ready when the forward pass is."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        softcap: float | None,
        z_loss: float | None,
        chunk: int,
    ) -> Tensor:
        id_V = torch.arange(weight_VD.size(0), device=x_ND.device)
        total = torch.zeros((), device=x_ND.device)
        d_weight_VD, d_x = torch.zeros_like(weight_VD, dtype=torch.float32), []
        for x_CD, targets_C1 in zip(x_ND.split(chunk), targets_N[:, None].split(chunk), strict=True):
            logits_CV = softcapped(F.linear(x_CD, weight_VD).float(), softcap)
            # log Z and the softmax from one pass of exponentials, the slowest part after the products.
            largest_C1 = logits_CV.amax(dim=-1, keepdim=True)
            exp_CV = (logits_CV - largest_C1).exp()
            sum_C1 = exp_CV.sum(dim=-1, keepdim=True)
            log_z_C1 = largest_C1 + sum_C1.log()
            total += (log_z_C1 - logits_CV.gather(1, targets_C1)).sum()
            d_CV = exp_CV / sum_C1
            if z_loss is not None:
                d_CV = d_CV * (1 + 2 * z_loss * log_z_C1)
            d_CV = d_CV - (id_V == targets_C1).float()
            if softcap is not None:
                d_CV = d_CV * (1 - (logits_CV / softcap).square())
            # Matrix multiplications in the dtype of the forward one, autocast or not.
            d_CV = d_CV.to(x_CD.dtype)
            d_x.append((d_CV @ weight_VD).to(x_CD.dtype))
            d_weight_VD += d_CV.mT @ x_CD
        ctx.save_for_backward(torch.cat(d_x), d_weight_VD.to(weight_VD.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, d_total: Tensor) -> tuple[Tensor | None, ...]:
        d_x_ND, d_weight_VD = ctx.saved_tensors
        return d_total * d_x_ND, d_total * d_weight_VD, None, None, None, None
