"""The content of fit.json.

The five top-level values are the point fit where the runs identify the law, and the posterior's
medians where they do not (or where the two disagree); the intervals are always the posterior's.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from x1_pretrain.config import Fit
from x1_pretrain.scaling import bootstrap as pairs
from x1_pretrain.scaling.approaches import n_opt_mark, side_by_side
from x1_pretrain.scaling.envelope import Envelope
from x1_pretrain.scaling.fit import Study, median_law
from x1_pretrain.scaling.identify import PARAMETERS, contraction
from x1_pretrain.scaling.intervals import interval, interval_with_error
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.point_fit import PointFit
from x1_pretrain.scaling.posterior import Posterior
from x1_pretrain.scaling.replicates import Points
from x1_pretrain.scaling.sensitivity import sensitivity


def fit_json(
    study: Study, settings: Fit, envelope: Envelope | None = None, asked: Law | None = None
) -> dict[str, Any]:
    """The content of fit.json, in its order of keys.

    `envelope` is that of the training curves, where there are any; `asked` is the law of curve_fit, where
    its values are wanted as the points.
    """
    runs, posterior = study.runs, study.posterior
    parameters = _parameters(posterior)
    warnings = _warnings(study.point_fit, parameters)
    use_fit = study.identified and study.point_fit is not None and not warnings
    best = asked or (study.point_fit.law if use_fit else median_law(posterior))
    kind = "curve_fit" if asked else "point fit" if use_fit else "posterior median"
    return {
        **{
            name: {"point": float(getattr(best, name)), "ci95": parameters[name]["ci95"]}
            for name in PARAMETERS
        },
        "point_is": kind,
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
            "points": runs.points,
        },
        "n_opt": _n_opt(study),
        "side_by_side": side_by_side(study, settings.target_params, envelope),
        "noise_floor": Points.of(runs).as_json(),
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
        "sensitivity": sensitivity(runs, study.budget_rows, settings.target_params),
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
        "mark": n_opt_mark(study),
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
    pairs_of_draws["rho"] = (posterior.rho, posterior.prior_rho)
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
