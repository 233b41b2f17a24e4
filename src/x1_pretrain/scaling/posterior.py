"""What the runs say about the law, as a distribution: it stays honest where three points meet five unknowns.

Model: ln L_observed ~ Normal(ln L(N, D), sigma), with the prior of `prior.py`. Where seeds were repeated,
their scatter is known noise beside sigma, which then is the misfit of the form alone. Unlike a bootstrap,
which has no spread when five parameters interpolate three points, its 95% intervals cover.
"""

from dataclasses import dataclass

import numpy as np

from x1_pretrain.errors import UserError
from x1_pretrain.scaling import ensemble
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.prior import Prior
from x1_pretrain.scaling.replicates import Points
from x1_pretrain.scaling.runs import Runs

MAX_ENSEMBLES = 5
DIMENSIONS = 6
MIN_WALKERS = 2 * (DIMENSIONS + 1)  # of an ensemble: each half spans the space
KEEP_EVERY = 10
BURN_IN = 0.3  # of the steps
SEED = 0
CANDIDATES = 4000  # prior draws among which the starts are chosen
PRIOR_DRAWS = 100_000


@dataclass(frozen=True)
class Sampling:
    """Walkers over all ensembles, and steps of each walker. Fixed seed: same input, same interval."""

    walkers: int
    steps: int
    seed: int = SEED

    def __post_init__(self) -> None:
        if not self.ensembles:
            raise UserError(
                f"fit.walkers: {self.walkers} cannot make two or more ensembles of an even number of at "
                f"least {MIN_WALKERS} walkers; take 100, or a multiple of 4 from {2 * MIN_WALKERS}"
            )
        if self.steps < 100:
            raise UserError(f"fit.draws: {self.steps} steps are too few; take at least 100, better 6000")

    @property
    def ensembles(self) -> int:
        """Into how many ensembles the walkers are divided, at most 5; 0 if they cannot be."""
        possible = [
            k
            for k in range(2, MAX_ENSEMBLES + 1)
            if self.walkers % (2 * k) == 0 and self.walkers // k >= MIN_WALKERS
        ]
        return max(possible, default=0)


@dataclass(frozen=True)
class Posterior:
    """Draws of laws and of the noise of a run: each array has shape (ensembles, draws)."""

    law: Law
    sigma: np.ndarray  # of ln L of a single run, its seed's noise included
    acceptance: float
    shift: np.ndarray  # of the six coordinates' means from the prior's, in its standard deviations
    prior_law: Law  # draws of the prior alone, shape (PRIOR_DRAWS,)
    prior_sigma: np.ndarray
    sampling: Sampling

    def predictive_loss(self, N: float, D: float) -> np.ndarray:
        """Draws of a new observed loss in nats, noise included, at (N, D); shape (ensembles, draws)."""
        noise = np.random.default_rng(self.sampling.seed + 1).standard_normal(self.sigma.shape)
        return self.law.loss(N, D) * np.exp(self.sigma * noise)


@dataclass(frozen=True)
class Target:
    """The posterior density of one set of runs, in coordinates at the geometric mean of their N and D.

    There the coordinates are nearly independent; at a point decades away they lie along a thin curved
    ridge in which walkers get stuck.
    """

    x: np.ndarray  # ln N, centred
    y: np.ndarray  # ln D, centred
    log_loss: np.ndarray
    seed_variance: np.ndarray  # known variance of each point; one number where it is none
    prior: Prior

    @classmethod
    def of(cls, points: Points, prior: Prior) -> "Target":
        """`prior` stands at the centre of the runs."""
        known = points.seed_variance / points.count if points.seed_variance else np.zeros(1)
        return cls(np.log(points.N / prior.N), np.log(points.D / prior.D), points.log_loss, known, prior)

    def log_shape(self, theta: np.ndarray) -> np.ndarray:
        """ln(L / T) at every run, for rows of theta: (k, 6) -> (k, n)."""
        s = 1 / (1 + np.exp(-theta[:, 1]))
        d_share = (1 - s) / (1 + np.exp(theta[:, 2]))
        exponents = np.exp(theta[:, 3:5])
        return np.log(
            s[:, None]
            + (1 - s - d_share)[:, None] * np.exp(-exponents[:, :1] * self.x)
            + d_share[:, None] * np.exp(-exponents[:, 1:] * self.y)
        )

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Log posterior density, up to a constant, of rows of theta: (k, 6) -> (k,)."""
        residual = self.log_shape(theta) + theta[:, :1] - self.log_loss
        variance = np.exp(2 * theta[:, 5:]) + self.seed_variance  # (k, n), or (k, 1) if all are equal
        fit = (residual**2 / variance).sum(axis=1)
        volume = np.log(variance).sum(axis=1) * (len(self.log_loss) / variance.shape[1])
        standard = self.prior.standard(theta)
        penalty = np.einsum("ij,ij->i", standard, standard)
        return -0.5 * (fit + volume + penalty)

    def starts(self, sampling: Sampling) -> np.ndarray:
        """Each ensemble starts at the best of its own prior draws, after their scale T was fitted."""
        walkers = sampling.walkers // sampling.ensembles
        starts = []
        for k in range(sampling.ensembles):
            theta = self.prior.sample(CANDIDATES, sampling.seed + 100 + k)
            theta[:, 0] = (self.log_loss - self.log_shape(theta)).mean(axis=1)
            best = np.argsort(-self.log_density(theta), kind="stable")[:walkers]
            # The halves of an ensemble should not be the better and the worse ones.
            starts.append(np.concatenate([theta[best[::2]], theta[best[1::2]]]))
        return np.stack(starts)


def sample_posterior(runs: Runs, prior: Prior, sampling: Sampling) -> Posterior:
    """The posterior of a law by independent ensembles; deterministic."""
    prior, points = prior.at(runs), Points.of(runs)
    target = Target.of(points, prior)
    draws = ensemble.sample(
        target.log_density,
        target.starts(sampling),
        steps=sampling.steps,
        burn_in=int(BURN_IN * sampling.steps),
        thin=KEEP_EVERY,
        seed=sampling.seed,
    )
    theta = draws.theta
    prior_theta = prior.sample(PRIOR_DRAWS, sampling.seed)
    return Posterior(
        law=prior.law(theta),
        sigma=np.sqrt(np.exp(2 * theta[..., 5]) + points.seed_variance),
        acceptance=draws.acceptance,
        shift=prior.standard(theta.reshape(-1, DIMENSIONS)).mean(axis=0),
        prior_law=prior.law(prior_theta),
        prior_sigma=np.exp(prior_theta[:, 5]),
        sampling=sampling,
    )
