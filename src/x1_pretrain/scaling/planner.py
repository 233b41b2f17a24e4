"""What a law advises: the best run for a budget, the best model to serve, and the price of another size.

Closed forms or one root, in FLOPs. Money enters as a ratio of prices: a dollar of serving is worth as many
training FLOPs as it would buy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from x1_pretrain.errors import UserError
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN, Law

INFERENCE_FLOPS = 2  # per parameter and token, one forward pass
WIDEST = 200.0  # of ln D in a search


@dataclass(frozen=True)
class Plan:
    """A run of N parameters on D tokens, its loss in nats per token, and its training FLOPs."""

    N: float
    D: float
    loss_nats: float

    @property
    def flops(self) -> float:
        return FLOPS_PER_PARAMETER_TOKEN * self.N * self.D


def compute_optimal(law: Law, C: float) -> Plan:
    """The lowest loss that C FLOPs of training buy."""
    N = float(law.n_opt(C))
    D = C / (FLOPS_PER_PARAMETER_TOKEN * N)
    return Plan(N, D, float(law.loss(N, D)))


def of_size(law: Law, N: float, C: float) -> Plan:
    """Another size for the same FLOPs."""
    D = C / (FLOPS_PER_PARAMETER_TOKEN * N)
    return Plan(N, D, float(law.loss(N, D)))


def to_reach(law: Law, loss_nats: float, served_tokens: float = 0.0) -> Plan:
    """The run that reaches a loss for the least FLOPs over its life, 6ND + 2NT with T `served_tokens`.

    Where both terms balance, alpha A / N^alpha = beta B / D^beta (1 + T / 3D); T = 0 is compute-optimal
    (Sardana et al. 2024, section 2). Raises `UserError` for a loss at or below E, which no run reaches.
    """
    if not loss_nats > law.E:
        raise UserError(
            f"a loss of {loss_nats:g} is not reached by any run: the law's irreducible loss is {law.E:.4g}"
        )
    reducible = loss_nats - law.E

    def n_term(log_D: float) -> float:
        return reducible - law.B * math.exp(-law.beta * log_D)

    def imbalance(log_D: float) -> float:
        """Increases with D: from below 0, where D is barely enough, to above."""
        d_term = law.B * math.exp(-law.beta * log_D)
        return law.alpha * n_term(log_D) - law.beta * d_term * (1 + served_tokens / 3 * math.exp(-log_D))

    low = math.log(law.B / reducible) / law.beta  # here even an infinite model only just reaches it
    log_D = _root(imbalance, low, low + WIDEST)
    N = (law.A / n_term(log_D)) ** (1 / law.alpha)
    return Plan(N, math.exp(log_D), loss_nats)


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Bisection to the last bit of a double, enough for a plan."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return (low + high) / 2


def lifetime_flops(plan: Plan, served_tokens: float) -> float:
    """6ND + 2NT."""
    return plan.flops + INFERENCE_FLOPS * plan.N * served_tokens


def excess(law: Law, plan: Plan) -> float:
    """How much more compute the run takes than the best run of the same loss, as a ratio minus 1."""
    return plan.flops / to_reach(law, plan.loss_nats).flops - 1


@dataclass(frozen=True)
class Prices:
    """Dollars of a FLOP: in training, and in serving for prompts and for generated tokens."""

    training: float
    prompt: float
    generated: float

    def effective_tokens(self, prompt_tokens: float, generated_tokens: float) -> float:
        """Served tokens that would cost as much if a FLOP of serving cost what one of training does."""
        served = prompt_tokens * self.prompt + generated_tokens * self.generated
        return served / self.training


def usd_per_flop(price_usd_per_hour: float, peak_flops: float, mfu: float) -> float:
    """Dollars of a FLOP on a device of `peak_flops` FLOP/s, used at `mfu` of them."""
    return price_usd_per_hour / (3600 * peak_flops * mfu)
