"""Can these runs determine the law? Rank, condition, contraction - and a verdict with its reasons."""

from dataclasses import dataclass

import numpy as np

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.posterior import Posterior
from x1_pretrain.scaling.prior import COORDINATES
from x1_pretrain.scaling.runs import Runs, plural

MIN_RUNS = 6
MIN_BUDGETS = 3
MAX_CONTRACTION = 0.5  # of alpha and beta: above it the prior is at least half of the answer
MAX_SHIFT = 2.0  # prior standard deviations
PARAMETERS = ("E", "A", "alpha", "B", "beta")
CHECKED_SHIFTS = ("logit_s", "ln_r", "ln_alpha", "ln_beta", "ln_sigma")  # T and rho are free


@dataclass(frozen=True)
class Jacobian:
    """d ln L / d ln(E, A, alpha, B, beta) at the runs: how far they can tell the parameters apart."""

    singular_values: tuple[float, ...]
    rank: int
    condition: float | None  # None where the rank is below 5: infinite


def jacobian(runs: Runs, law: Law) -> Jacobian:
    """Singular values, rank and condition number at `law`; rank below 5 is unidentifiable outright."""
    n_term = law.A * runs.N**-law.alpha
    d_term = law.B * runs.D**-law.beta
    columns = [
        np.full(len(runs), law.E),
        n_term,
        -law.alpha * np.log(runs.N) * n_term,
        d_term,
        -law.beta * np.log(runs.D) * d_term,
    ]
    matrix = np.stack(columns, axis=1) / law.loss(runs.N, runs.D)[:, None]
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int(np.linalg.matrix_rank(matrix))
    condition = float(values[0] / values[-1]) if rank == len(PARAMETERS) else None
    return Jacobian(tuple(float(v) for v in values), rank, condition)


def contraction(posterior: np.ndarray, prior: np.ndarray) -> float:
    """Posterior over prior standard deviation of the logarithm: 1 means the runs said nothing."""
    return float(np.log(posterior).std() / np.log(prior).std())


def doubts(runs: Runs, posterior: Posterior, matrix: Jacobian) -> list[str]:
    """Reasons why the law is not identified, one sentence each; empty if it is."""
    found = []
    budgets = len(runs.budgets())
    if runs.points < MIN_RUNS:
        found.append(
            f"{runs.points} distinct points cannot fix five parameters; at least {MIN_RUNS} are needed."
        )
    if budgets < MIN_BUDGETS:
        found.append(f"The runs have {plural(budgets, 'FLOPs budget')}; at least {MIN_BUDGETS} are needed.")
    if matrix.rank < len(PARAMETERS):
        found.append(f"The Jacobian has rank {matrix.rank} of {len(PARAMETERS)}.")
    for name in ("alpha", "beta"):
        ratio = contraction(getattr(posterior.law, name), getattr(posterior.prior_law, name))
        if ratio > MAX_CONTRACTION:
            found.append(f"The interval of {name} is mostly the prior's: its spread is {ratio:.2f} of it.")
    shifts = dict(zip(COORDINATES, posterior.shift, strict=True))
    for name in CHECKED_SHIFTS:
        if abs(shifts[name]) > MAX_SHIFT:
            found.append(
                f"The runs disagree with the prior: {name} lies {shifts[name]:+.1f} of its standard "
                "deviations away, so intervals may be too narrow or misplaced."
            )
    return found
