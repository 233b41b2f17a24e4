"""Everything known about the law of some runs: the content of fit.json.

The five top-level values are the point fit where the runs identify the law, and the posterior's
medians where they do not (or where the two disagree); the intervals are always the posterior's.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain.config import Fit
from x1_pretrain.scaling import bootstrap as pairs
from x1_pretrain.scaling.identify import PARAMETERS, Jacobian, contraction, doubts, jacobian
from x1_pretrain.scaling.intervals import interval, interval_with_error
from x1_pretrain.scaling.isoflop import Parabola, fit_parabolas
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.point_fit import PointFit, point_fit
from x1_pretrain.scaling.posterior import Posterior, Sampling, sample_posterior
from x1_pretrain.scaling.prior import DEFAULT, Prior, load_prior
from x1_pretrain.scaling.runs import Runs, plural

POINT_FIT_RUNS, POINT_FIT_BUDGETS = 6, 2


@dataclass(frozen=True)
class Study:
    """The runs and all that was inferred from them; the same input gives the same bits."""

    runs: Runs
    prior: Prior
    posterior: Posterior
    parabolas: list[Parabola]
    point_fit: PointFit | None
    point_fit_refused: str | None
    jacobian: Jacobian
    doubts: list[str]

    @property
    def identified(self) -> bool:
        return not self.doubts

    @property
    def isoflop(self) -> Parabola | None:
        """The parabola of the largest budget: the sweep's own IsoFLOP set."""
        return self.parabolas[-1] if self.parabolas else None

    @property
    def budget(self) -> float:
        """C of the IsoFLOP set, or the largest C of any run."""
        return self.isoflop.C if self.isoflop else float(self.runs.C.max())


def median_law(posterior: Posterior) -> Law:
    """Medians of the posterior, parameter by parameter."""
    return Law(**{name: float(np.median(getattr(posterior.law, name))) for name in PARAMETERS})


def infer(runs: Runs, settings: Fit, prior_file: Path = DEFAULT) -> Study:
    """Fit, posterior, parabolas and verdict. About a second for a dozen runs; raises `UserError`."""
    prior = load_prior(prior_file)
    posterior = sample_posterior(runs, prior, Sampling(settings.walkers, settings.draws))
    budgets = len(runs.budgets())
    fit, refused = None, None
    if len(runs) < POINT_FIT_RUNS or budgets < POINT_FIT_BUDGETS:
        refused = (
            f"{len(runs)} runs over {plural(budgets, 'budget')}: five parameters need at least "
            f"{POINT_FIT_RUNS} runs over {POINT_FIT_BUDGETS}, with fewer the starting values decide"
        )
    else:
        fit = point_fit(runs)
    matrix = jacobian(runs, median_law(posterior))
    return Study(
        runs=runs,
        prior=prior,
        posterior=posterior,
        parabolas=fit_parabolas(runs),
        point_fit=fit,
        point_fit_refused=refused,
        jacobian=matrix,
        doubts=doubts(runs, posterior, matrix),
    )


def fit_json(study: Study, settings: Fit) -> dict[str, Any]:
    """The content of fit.json, in its order of keys."""
    runs, posterior = study.runs, study.posterior
    parameters = _parameters(posterior)
    warnings = _warnings(study.point_fit, parameters)
    use_fit = study.identified and study.point_fit is not None and not warnings
    best = study.point_fit.law if use_fit else median_law(posterior)
    return {
        **{
            name: {"point": float(getattr(best, name)), "ci95": parameters[name]["ci95"]}
            for name in PARAMETERS
        },
        "point_is": "point fit" if use_fit else "posterior median",
        "identified": study.identified,
        "identified_why": study.doubts
        or ["Enough runs over enough budgets, and the data outweigh the prior."],
        "warnings": warnings,
        "runs": {
            "n": len(runs),
            "sha256": runs.sha256,
            "budgets": [
                {"C": float(np.exp(np.log(runs.C[rows]).mean())), "runs": len(rows)}
                for rows in runs.budgets()
            ],
            "N": [float(runs.N.min()), float(runs.N.max())],
            "D": [float(runs.D.min()), float(runs.D.max())],
        },
        "point_fit": _point_fit(study),
        "posterior": {
            "walkers": posterior.sampling.walkers,
            "steps": posterior.sampling.steps,
            "seed": posterior.sampling.seed,
            "acceptance": posterior.acceptance,
            "parameters": parameters,
        },
        "bootstrap": _bootstrap(study, settings),
        "jacobian": asdict(study.jacobian) | {"singular_values": [*study.jacobian.singular_values]},
        "isoflop": [parabola.as_json() for parabola in study.parabolas],
        "n_opt": _n_opt(study),
        "prior": study.prior.content,
    }


def _n_opt(study: Study) -> dict[str, Any]:
    """The law's best size on the IsoFLOP budget: trustworthy where it lies among the sizes tried."""
    C, N = study.budget, study.runs.N
    found = interval_with_error(study.posterior.law.n_opt(C))
    inside = N.min() <= found["median"] <= N.max()
    return {
        "C": C,
        "kind": "interpolation" if inside else "extrapolation",
        **found,
        "prior_ci95": interval(study.posterior.prior_law.n_opt(C))["ci95"],
    }


def _warnings(fit: PointFit | None, parameters: dict[str, Any]) -> list[str]:
    """What is wrong with the point fit, one sentence each; with any, the medians stand."""
    if fit is None:
        return []
    found = []
    if not fit.converged:
        found.append("The point fit's two starts end at different optima, or at none.")
    if fit.at_boundary:
        found.append("A term of the point fit has vanished: it is not a law with five parameters.")
    outside = [
        name
        for name in PARAMETERS
        if not parameters[name]["ci95"][0] <= getattr(fit.law, name) <= parameters[name]["ci95"][1]
    ]
    if outside:
        found.append(
            f"The point fit (robust, no prior) and the posterior (normal noise, prior) disagree: its "
            f"{', '.join(outside)} lie outside the 95% intervals, so outliers or the prior matter."
        )
    return found


def _parameters(posterior: Posterior) -> dict[str, Any]:
    names = (*PARAMETERS, "a", "b")
    pairs_of_draws = {
        name: (getattr(posterior.law, name), getattr(posterior.prior_law, name)) for name in names
    }
    pairs_of_draws["sigma"] = (posterior.sigma, posterior.prior_sigma)
    return {
        name: {
            **interval_with_error(draws),
            "prior_ci95": interval(prior)["ci95"],
            "contraction": contraction(draws, prior),
        }
        for name, (draws, prior) in pairs_of_draws.items()
    }


def _point_fit(study: Study) -> dict[str, Any]:
    fit = study.point_fit
    if fit is None:
        return {"refused": study.point_fit_refused}
    return {
        **{name: float(getattr(fit.law, name)) for name in PARAMETERS},
        "objective": fit.objective,
        "second_objective": fit.second_objective,
        "gradient_norm": fit.gradient_norm,
        "converged": fit.converged,
        "at_boundary": fit.at_boundary,
    }


def _bootstrap(study: Study, settings: Fit) -> dict[str, Any]:
    refused = pairs.refusal(study.runs, settings.bootstrap)
    if refused is None and study.point_fit is None:
        refused = study.point_fit_refused
    if refused is not None:
        return {"refused": refused}
    seed = study.posterior.sampling.seed
    result = pairs.pairs_bootstrap(study.runs, study.point_fit.law, settings.bootstrap, seed)
    return {
        "resamples": result.resamples,
        "used": result.used,
        "unconverged": result.unconverged,
        "resampling": result.resampling,
        "ci95": pairs.quantiles(result),
    }
