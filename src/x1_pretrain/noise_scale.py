"""The gradient noise scale: about the batch size, in tokens, above which more tokens a step buy little.

McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1: gradients of two batch
sizes tell the true gradient's square |G|^2 and the trace of its covariance tr(S); B_simple = tr(S) / |G|^2.
Here the small batch is one training batch, the large one is the mean of several.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class GradientNoise:
    """Unbiased estimates of |G|^2 and of tr(S) per token; either may come out negative by chance."""

    signal: float
    noise: float


def measure(
    parameters: Sequence[nn.Parameter],
    backward: Callable[[Tensor], object],
    batches: Iterable[Tensor],
    batch_tokens: int,
) -> GradientNoise:
    """`backward(batch)` adds the gradient of a batch's mean loss; two batches or more. Leaves no gradient.

    Moves no RNG and no weight.
    """
    squares: list[float] = []
    total: list[Tensor] = []
    for batch in batches:
        backward(batch)
        gradient = [p.grad.detach() for p in parameters if p.grad is not None]
        squares.append(_square(gradient))
        total = [a + b for a, b in zip(total, gradient, strict=True)] if total else gradient
        for parameter in parameters:
            parameter.grad = None
    mean = [g / len(squares) for g in total]
    return estimate(sum(squares) / len(squares), _square(mean), batch_tokens, len(squares))


def estimate(small_square: float, large_square: float, batch_tokens: int, batches: int) -> GradientNoise:
    """From the mean |g|^2 of one batch and the |g|^2 of the mean over `batches` (A.1, eq. A.2 and A.3).

    Raises `ValueError` for fewer than two batches: they cannot tell signal from noise.
    """
    if batches < 2:
        raise ValueError(f"{batches} batch tells nothing about the noise; at least 2 are needed")
    small, large = batch_tokens, batch_tokens * batches
    return GradientNoise(
        signal=(large * large_square - small * small_square) / (large - small),
        noise=(small_square - large_square) / (1 / small - 1 / large),
    )


def noise_scale_tokens(measured: Sequence[GradientNoise]) -> float | None:
    """The ratio of the means, which is steadier than the mean of ratios; None where it has no meaning."""
    signal, noise = sum(m.signal for m in measured), sum(m.noise for m in measured)
    return noise / signal if signal > 0 and noise > 0 else None


def _square(gradient: Sequence[Tensor]) -> float:
    return torch.stack([g.double().square().sum() for g in gradient]).sum().item()
