"""Pairs bootstrap of the point fit, for data that can bear it.

Resampling three rows gives three distinct ones in two of nine cases, and five parameters interpolate
them: the spread says nothing. So the bootstrap is refused, with the reason, below 9 rows over 3
budgets; residuals are never resampled (their intervals cover 70 to 80% at n = 9).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.point_fit import HUBER_DELTA, Problem
from x1_pretrain.scaling.runs import Runs, plural

MIN_POINTS = 9
MIN_BUDGETS = 3
MIN_DISTINCT = 6  # rows of a resample: five parameters and one to spare
MAX_ITERATIONS = 400
TOLERANCE = 1e-5  # of the gradient, per row and in units of delta
ARMIJO = 1e-4
HALVINGS = 25


@dataclass(frozen=True)
class Bootstrap:
    """Refitted laws, fields of shape (used,). `resampling` says how rows were drawn."""

    law: Law
    resamples: int
    used: int
    unconverged: int
    resampling: str


def refusal(runs: Runs, resamples: int) -> str | None:
    """Why there is no bootstrap of these runs, or None."""
    budgets = len(runs.budgets())
    if resamples == 0:
        return "not asked for: 0 resamples"
    if runs.points < MIN_POINTS or budgets < MIN_BUDGETS:
        return (
            f"{runs.points} distinct points over {plural(budgets, 'budget')}: a bootstrap of five "
            f"parameters needs at least {MIN_POINTS} over {MIN_BUDGETS}, with fewer its intervals are "
            "far too narrow"
        )
    return None


def pairs_bootstrap(runs: Runs, start: Law, resamples: int, seed: int) -> Bootstrap:
    """Refit `resamples` resamples of the rows, each by BFGS from the law `start`."""
    problem = Problem.of(runs)
    counts, resampling = _resample(runs, resamples, seed)
    counts = counts[(counts > 0).sum(axis=1) >= MIN_DISTINCT]
    theta, converged = minimise_all(problem, problem.theta_of(start), counts)
    theta = theta[converged]
    law = Law(
        E=np.exp(theta[:, 2]),
        A=_exp(theta[:, 0] + theta[:, 3] * problem.center_x),
        alpha=theta[:, 3],
        B=_exp(theta[:, 1] + theta[:, 4] * problem.center_y),
        beta=theta[:, 4],
    )
    return Bootstrap(law, resamples, len(theta), int((~converged).sum()), resampling)


def _exp(logarithm: np.ndarray) -> np.ndarray:
    """Where a term has vanished, its coefficient may be beyond all floats: the largest stands for it."""
    return np.exp(np.minimum(logarithm, np.log(np.finfo(float).max)))


def _resample(runs: Runs, resamples: int, seed: int) -> tuple[np.ndarray, str]:
    """How often each row occurs in each resample, (resamples, n): within budgets if they are large enough."""
    rng = np.random.default_rng(seed)
    budgets = runs.budgets()
    within = all(len(budget) >= 3 for budget in budgets)
    counts = np.zeros((resamples, len(runs)))
    for group in budgets if within else [np.arange(len(runs))]:
        share = np.full(len(group), 1 / len(group))
        counts[:, group] = rng.multinomial(len(group), share, size=resamples)
    return counts, "pairs within each budget" if within else "pairs"


def minimise_all(problem: Problem, start: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """BFGS on all resamples at once: weights (R, n) -> theta (R, 5), converged (R,).

    Nocedal and Wright, algorithm 6.1, with backtracking; a resample leaves when its gradient is small.
    """
    R = len(weights)
    theta = np.tile(start, (R, 1))
    converged = np.zeros(R, dtype=bool)
    scale = HUBER_DELTA * weights.sum(axis=1)
    active = np.arange(R)
    value, gradient = problem.objective(theta, weights)
    inverse = np.tile(np.eye(5), (R, 1, 1)) / scale[:, None, None]
    for _ in range(MAX_ITERATIONS):
        small = np.abs(gradient[active]).max(axis=1) <= TOLERANCE * scale[active]
        converged[active[small]] = True
        active = active[~small]
        if not len(active):
            break
        direction = -np.einsum("rij,rj->ri", inverse[active], gradient[active])
        slope = np.einsum("ri,ri->r", direction, gradient[active])
        step, new_value, new_gradient, moved = _backtrack(
            problem, theta[active], value[active], direction, slope, weights[active]
        )
        change = new_gradient - gradient[active]
        inverse[active] = _update(inverse[active], step, change)
        inverse[active[~moved]] = np.eye(5) / scale[active[~moved], None, None]
        theta[active] += step
        value[active], gradient[active] = new_value, new_gradient
    return theta, converged


def _backtrack(
    problem: Problem,
    theta: np.ndarray,
    value: np.ndarray,
    direction: np.ndarray,
    slope: np.ndarray,
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Halve each step until it descends enough; steps that never do are zero and not `moved`."""
    # No coordinate moves by more than 1 at once: they are logarithms and exponents.
    length = 1 / np.maximum(1.0, np.abs(direction).max(axis=1))
    step = np.zeros_like(direction)
    new_value, new_gradient = problem.objective(theta, weights)
    todo = np.arange(len(theta))
    for _ in range(HALVINGS):
        trial = length[todo, None] * direction[todo]
        trial_value, trial_gradient = problem.objective(theta[todo] + trial, weights[todo])
        good = trial_value <= value[todo] + ARMIJO * length[todo] * slope[todo]
        done = todo[good]
        step[done], new_value[done], new_gradient[done] = (
            trial[good],
            trial_value[good],
            trial_gradient[good],
        )
        todo = todo[~good]
        if not len(todo):
            break
        length[todo] /= 2
    moved = np.ones(len(theta), dtype=bool)
    moved[todo] = False
    return step, new_value, new_gradient, moved


def _update(inverse: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """The BFGS update of the inverse Hessians, skipped where the curvature is not positive."""
    curvature = np.einsum("ri,ri->r", step, change)
    size = np.linalg.norm(step, axis=1) * np.linalg.norm(change, axis=1)
    usable = curvature > 1e-10 * size
    rho = 1 / np.where(usable, curvature, 1.0)
    left = np.eye(5) - rho[:, None, None] * np.einsum("ri,rj->rij", step, change)
    updated = left @ inverse @ left.transpose(0, 2, 1)
    updated += rho[:, None, None] * np.einsum("ri,rj->rij", step, step)
    return np.where(usable[:, None, None], updated, inverse)


def quantiles(bootstrap: Bootstrap) -> dict[str, Any]:
    """95% percentile interval of each parameter and exponent."""
    law = bootstrap.law
    values = {
        "E": law.E, "A": law.A, "alpha": law.alpha, "B": law.B, "beta": law.beta, "a": law.a, "b": law.b,
    }  # fmt: skip
    return {name: [float(q) for q in np.quantile(draws, (0.025, 0.975))] for name, draws in values.items()}
