"""What the runs say about the law, as a distribution: it stays honest where three points meet five unknowns.

Model: ln L_observed ~ Normal(ln L(N, D), sigma), with the prior of `prior.py`. Runs of one size (the same N)
share a part of their error, rho of its variance: they branch off one trunk, and a size is tuned well or badly
as a whole, so that four branches teach less than four runs. Where seeds were repeated, their scatter is known
noise beside sigma, independent from run to run; sigma then is the misfit of the form alone. Unlike a
bootstrap, which has no spread when five parameters interpolate three points, its 95% intervals cover.
"""

from dataclasses import dataclass

import numpy as np

from x1_pretrain.errors import UserError
from x1_pretrain.scaling import ensemble
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.prior import COORDINATES, Prior
from x1_pretrain.scaling.replicates import Points
from x1_pretrain.scaling.runs import Runs

MAX_ENSEMBLES = 5
DIMENSIONS = len(COORDINATES)
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
    rho: np.ndarray  # the share of sigma^2 that runs of one size have in common
    acceptance: float
    shift: np.ndarray  # of the seven coordinates' means from the prior's, in its standard deviations
    prior_law: Law  # draws of the prior alone, shape (PRIOR_DRAWS,)
    prior_sigma: np.ndarray
    prior_rho: np.ndarray
    sampling: Sampling

    def predictive_loss(self, N: float, D: float) -> np.ndarray:
        """Draws of a new observed loss in nats, noise included, at (N, D); shape (ensembles, draws).

        The noise is the whole sigma, as for a size that was never run. For one that was, what its runs
        show of their common error is not used, so that the interval is rather too wide than too narrow.
        """
        noise = np.random.default_rng(self.sampling.seed + 1).standard_normal(self.sigma.shape)
        return self.law.loss(N, D) * np.exp(self.sigma * noise)


@dataclass(frozen=True)
class Target:
    """The posterior density of one set of runs, in coordinates at the geometric mean of their N and D.

    There the coordinates are nearly independent; at a point decades away they lie along a thin curved
    ridge in which walkers get stuck. The points are in order of N, so that those of one size (the same N,
    exactly) lie side by side.
    """

    x: np.ndarray  # ln N, centred
    y: np.ndarray  # ln D, centred
    log_loss: np.ndarray
    seed_variance: np.ndarray  # known variance of each point
    first: np.ndarray  # index of the first point of each size
    prior: Prior

    @classmethod
    def of(cls, points: Points, prior: Prior) -> "Target":
        """`prior` stands at the centre of the runs."""
        order = np.argsort(points.N, kind="stable")
        N, D = points.N[order], points.D[order]
        return cls(
            x=np.log(N / prior.N),
            y=np.log(D / prior.D),
            log_loss=points.log_loss[order],
            seed_variance=points.seed_variance / points.count[order],
            first=np.unique(N, return_index=True)[1],
            prior=prior,
        )

    def log_shape(self, theta: np.ndarray) -> np.ndarray:
        """ln(L / T) at every run, for rows of theta: (k, 7) -> (k, n)."""
        s = 1 / (1 + np.exp(-theta[:, 1]))
        d_share = (1 - s) / (1 + np.exp(theta[:, 2]))
        exponents = np.exp(theta[:, 3:5])
        return np.log(
            s[:, None]
            + (1 - s - d_share)[:, None] * np.exp(-exponents[:, :1] * self.x)
            + d_share[:, None] * np.exp(-exponents[:, 1:] * self.y)
        )

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Log posterior density, up to a constant, of rows of theta: (k, 7) -> (k,).

        The residuals of a size have the covariance diag(own) + shared, inverted by the formula of Sherman and
        Morrison (1950), with the determinant prod(own) (1 + shared sum(1 / own)). At a size of one point it
        is own + shared, so that rho does not matter there.
        """
        residual = self.log_shape(theta) + theta[:, :1] - self.log_loss
        misfit = np.exp(2 * theta[:, 5:6])
        unshared = misfit / (1 + np.exp(theta[:, 6:]))
        shared, own = misfit - unshared, unshared + self.seed_variance  # (k, 1), (k, n)
        weighted = residual / own
        growth = 1 + shared * self._over_sizes(1 / own)
        common = shared / growth * self._over_sizes(weighted) ** 2
        fit = (residual * weighted).sum(axis=1) - common.sum(axis=1)
        volume = np.log(own).sum(axis=1) + np.log(growth).sum(axis=1)
        standard = self.prior.standard(theta)
        penalty = np.einsum("ij,ij->i", standard, standard)
        return -0.5 * (fit + volume + penalty)

    def _over_sizes(self, values: np.ndarray) -> np.ndarray:
        """Sums over the points of each size: (k, n) -> (k, sizes)."""
        return np.add.reduceat(values, self.first, axis=1)

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
    misfit = np.exp(2 * theta[..., 5])
    total = misfit + points.seed_variance
    prior_theta = prior.sample(PRIOR_DRAWS, sampling.seed)
    return Posterior(
        law=prior.law(theta),
        sigma=np.sqrt(total),
        rho=misfit / total / (1 + np.exp(-theta[..., 6])),
        acceptance=draws.acceptance,
        shift=prior.standard(theta.reshape(-1, DIMENSIONS)).mean(axis=0),
        prior_law=prior.law(prior_theta),
        prior_sigma=np.exp(prior_theta[:, 5]),
        prior_rho=1 / (1 + np.exp(-prior_theta[:, 6])),
        sampling=sampling,
    )
