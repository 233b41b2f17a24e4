"""Which run next? The one that shrinks the interval of D_opt most for its FLOPs.

To first order in the posterior: a run at (N, D) shows ln L(N, D) with noise sigma, and shrinks the variance
of ln D_opt by the square of their covariance over the variance of what is seen (a linear-Gaussian update).
So the draws at hand suffice and nothing is fitted again.
"""

from dataclasses import dataclass

import numpy as np

from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN, Law
from x1_pretrain.scaling.posterior import Posterior
from x1_pretrain.scaling.runs import Runs

TOKENS_PER_PARAMETER = np.geomspace(1.25, 320.0, 9)  # below, the form breaks; above, data repeat
BEYOND = 16.0  # candidates reach so many times beyond the sizes tried
SIZES = 13
DRAWS = 4000


@dataclass(frozen=True)
class Candidate:
    """A run that could be next. `shrink`: the factor on the width of the interval of ln D_opt, below 1."""

    N: float
    D: float
    shrink: float

    @property
    def flops(self) -> float:
        return FLOPS_PER_PARAMETER_TOKEN * self.N * self.D

    @property
    def gain_per_flop(self) -> float:
        """Nats of width of ln D_opt saved, relative, for each FLOP."""
        return -float(np.log(self.shrink)) / self.flops


def candidates(runs: Runs, posterior: Posterior, target: float, C: float) -> list[Candidate]:
    """Runs of at most C FLOPs, from the sizes tried to 16 times beyond, most shrinking first."""
    sizes = np.geomspace(runs.N.min() / 2, runs.N.max() * BEYOND, SIZES)
    grid = [(N, N * ratio) for N in sizes for ratio in TOKENS_PER_PARAMETER]
    affordable = [(N, D) for N, D in grid if FLOPS_PER_PARAMETER_TOKEN * N * D <= C]
    every = max(1, posterior.sigma.size // DRAWS)
    law = Law(*(getattr(posterior.law, k).ravel()[::every] for k in ("E", "A", "alpha", "B", "beta")))
    noise = float(np.median(posterior.sigma**2))
    wanted = np.log(law.d_opt(target))
    wanted = wanted - wanted.mean()
    found = []
    for N, D in affordable:
        seen = np.log(law.loss(N, D))
        seen = seen - seen.mean()
        explained = (wanted @ seen) ** 2 / ((seen @ seen + len(seen) * noise) * (wanted @ wanted))
        found.append(Candidate(float(N), float(D), float(np.sqrt(1 - explained))))
    return sorted(found, key=lambda candidate: candidate.shrink)


def best_per_flop(found: list[Candidate]) -> Candidate:
    """Of the candidates with at least half of the best one's gain, the one that gains most per FLOP.

    Without that bound it would be the cheapest run of all, which teaches next to nothing.
    """
    telling = [run for run in found if np.log(run.shrink) <= np.log(found[0].shrink) / 2]
    return max(telling, key=lambda run: run.gain_per_flop)
