"""Do the 95% intervals of the scaling law hold what they promise? Simulated, as one JSON line.

    python benchmarks/coverage.py              200 repeats of each cell, a quarter of an hour on one core
    python benchmarks/coverage.py --quick      8 repeats: shows that everything runs

For each known law and each design of runs: losses with 0.5% noise, the posterior of the project, and whether
its interval contains the truth. The noise is independent or, in designs with several runs of a size, to 70%
of its variance shared by them. `from_prior` draws the laws and the noise from the prior itself, which a right
sampler must cover at 95% whatever the design (Talts et al. 2018).
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.scaling.intervals import interval
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN, Law
from x1_pretrain.scaling.posterior import Posterior, Sampling, sample_posterior
from x1_pretrain.scaling.prior import load_prior
from x1_pretrain.scaling.published import BESIROGLU, HOFFMANN
from x1_pretrain.scaling.runs import Runs

SIGMA = 0.005
RHO = 0.7  # share of sigma^2 that runs of one size have in common, where errors are shared
TARGET = 1e9  # parameters
HELD_OUT = 2.5  # the predicted run costs so many times the budget
QUANTITIES = ("D_opt_1B", "E", "alpha", "beta", "N_opt", "held_out_loss")


@dataclass(frozen=True)
class Place:
    """Where runs are made: the FLOPs of one budget and three sizes for it."""

    C: float
    sizes: tuple[float, float, float]


LAB = Place(1.35e17, (5e6, 25e6, 100e6))
TINY = Place(6e12, (55_296, 230_400, 786_432))
TRUTHS = {
    "hoffmann": (HOFFMANN.law, LAB),
    "besiroglu": (BESIROGLU.law, LAB),
    # C4 with all parameters counted, refitted from the 104 runs of Gadre et al. 2024
    "gadre": (Law(E=1.62, A=122.6, alpha=0.253, B=243.0, beta=0.262), LAB),
    # small runs on templated text: over half of the loss is irreducible, and D/N = 20 is best for 1B
    "templated": (Law(E=1.4, A=14.1, alpha=0.27, B=107.0, beta=0.33), TINY),
}


def three(place: Place) -> tuple[np.ndarray, np.ndarray]:
    """(N, C): the lab's triple."""
    return np.array(place.sizes), np.full(3, place.C)


def nine(place: Place) -> tuple[np.ndarray, np.ndarray]:
    """Three sizes on each of three budgets, larger sizes for larger budgets."""
    return _grid(place, np.array([0.1, 0.32, 1.0]), np.array(place.sizes))


def branches(place: Place) -> tuple[np.ndarray, np.ndarray]:
    """The triple with cool-down branches at D/8, D/4, D/2 and D."""
    return np.repeat(place.sizes, 4), place.C * np.tile([0.125, 0.25, 0.5, 1.0], 3)


def twenty_five(place: Place) -> tuple[np.ndarray, np.ndarray]:
    """Five sizes on each of five budgets, two decades apart in all."""
    return _grid(place, np.geomspace(0.1, 10, 5), np.geomspace(place.sizes[0], place.sizes[-1], 5))


def five_with_branches(place: Place) -> tuple[np.ndarray, np.ndarray]:
    """Five sizes, each with cool-down branches at D/16, D/8, D/4, D/2 and D."""
    sizes = np.geomspace(place.sizes[0], place.sizes[-1], 5)
    return np.repeat(sizes, 5), place.C * np.tile(2.0 ** np.arange(-4, 1), 5)


def _grid(place: Place, factors: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.outer(np.sqrt(factors), sizes).ravel(), np.repeat(place.C * factors, len(sizes))


DESIGNS = {
    "3": three,
    "9 over 3": nine,
    "12 branches": branches,
    "25 over 5": twenty_five,
    "25 branches": five_with_branches,
}
INDEPENDENT = [
    (truth, design, "independent" if truth in TRUTHS else "from the prior")
    for truth in (*TRUTHS, "from_prior")
    for design in ("3", "9 over 3", "12 branches", "25 over 5")
]
SHARED = [
    (truth, design, "shared by size")
    for truth in ("hoffmann", "templated")
    for design in ("12 branches", "25 branches")
]


def simulated(
    design: Callable, place: Place, law: Law, sigma: float, rho: float, rng: np.random.Generator
) -> Runs:
    """Runs of a known law: normal noise `sigma` of ln L, `rho` of its variance shared by runs of one size."""
    N, C = design(place)
    D = C / (FLOPS_PER_PARAMETER_TOKEN * N)
    sizes, which = np.unique(N, return_inverse=True)
    own = rng.standard_normal(len(N))
    # From a stream of its own, so that the independent part is the same whatever rho is.
    shared = rng.spawn(1)[0].standard_normal(len(sizes))[which]
    loss = law.loss(N, D) * np.exp(sigma * (np.sqrt(rho) * shared + np.sqrt(1 - rho) * own))
    return Runs(tuple(f"run{i}" for i in range(len(N))), N, D, loss, None, None, "0" * 64)


def contained(posterior: Posterior, law: Law, sigma: float, C: float, rng: np.random.Generator) -> list[bool]:
    """For each of QUANTITIES: does the 95% interval contain the true value?"""
    draws = posterior.law
    N = float(np.median(draws.n_opt(HELD_OUT * C)))
    D = HELD_OUT * C / (FLOPS_PER_PARAMETER_TOKEN * N)
    observed = law.loss(N, D) * np.exp(sigma * rng.standard_normal())
    pairs = [
        (draws.d_opt(TARGET), law.d_opt(TARGET)),
        *((getattr(draws, name), getattr(law, name)) for name in ("E", "alpha", "beta")),
        (draws.n_opt(C), law.n_opt(C)),
        (posterior.predictive_loss(N, D), observed),
    ]
    ends = [interval(values)["ci95"] for values, _ in pairs]
    return [bool(low <= truth <= high) for (low, high), (_, truth) in zip(ends, pairs, strict=True)]


def cell(truth: str, design: str, errors: str, repeats: int, sampling: Sampling) -> dict[str, Any]:
    """Coverage of each quantity, and the median factor between the ends of D_opt's interval."""
    rng = np.random.default_rng([list(DESIGNS).index(design), *truth.encode()])
    hits, factors = np.zeros(len(QUANTITIES)), []
    prior, place = load_prior(), TRUTHS[truth][1] if truth in TRUTHS else LAB
    centred = prior.at(simulated(DESIGNS[design], place, HOFFMANN.law, SIGMA, 0.0, rng))
    for i in range(repeats):
        if truth in TRUTHS:
            law, sigma, rho = TRUTHS[truth][0], SIGMA, RHO if errors == "shared by size" else 0.0
        else:
            theta = centred.sample(1, seed=i)[0]
            law, sigma, rho = centred.law(theta), float(np.exp(theta[5])), float(1 / (1 + np.exp(-theta[6])))
        runs = simulated(DESIGNS[design], place, law, sigma, rho, rng)
        posterior = sample_posterior(runs, prior, sampling)
        hits += contained(posterior, law, sigma, place.C, rng)
        low, high = interval(posterior.law.d_opt(TARGET))["ci95"]
        factors.append(high / low)
    return {
        "truth": truth,
        "design": design,
        "errors": errors,
        "coverage": {name: float(h) for name, h in zip(QUANTITIES, hits / repeats, strict=True)},
        "D_opt_1B_end_to_end": float(np.median(factors)),
    }


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200, help="of each cell")
    parser.add_argument("--steps", type=int, default=1000, help="of each of the 100 walkers")
    parser.add_argument("--quick", action="store_true", help="8 repeats, 300 steps")
    options = parser.parse_args(argv)
    repeats, steps = (8, 300) if options.quick else (options.repeats, options.steps)
    if repeats < 1:
        raise UserError(f"--repeats {repeats}: must be at least 1")
    sampling = Sampling(walkers=100, steps=steps)
    cells = []
    for truth, design, errors in (*INDEPENDENT, *SHARED):
        cells.append(cell(truth, design, errors, repeats, sampling))
        print(json.dumps(cells[-1]), file=sys.stderr)
    d_opt = [c["coverage"]["D_opt_1B"] for c in cells]
    result = {
        "benchmark": "coverage",
        "ratio": min(d_opt) / 0.95,
        "lowest": min(d_opt),
        "highest": max(d_opt),
        "standard_error": float(np.sqrt(0.95 * 0.05 / repeats)),
        "repeats": repeats,
        "steps": steps,
        "sigma": SIGMA,
        "rho": RHO,
        "cells": cells,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
