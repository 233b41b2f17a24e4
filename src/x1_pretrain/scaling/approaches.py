"""Hoffmann's three approaches and the lab's curve_fit side by side, each number with how far to trust it."""

from typing import Any

import numpy as np

from x1_pretrain.scaling.curve_fit import curve_fit
from x1_pretrain.scaling.envelope import Envelope
from x1_pretrain.scaling.fit import Study
from x1_pretrain.scaling.intervals import interval
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN, Law
from x1_pretrain.scaling.runs import plural

NO_CURVES = "no training curves were given: --curves FOLDER"
NOTHING = {"a": None, "b": None, "N_opt": None, "D_opt": None, "ci95": None}


def side_by_side(study: Study, target: float, envelope: Envelope | None) -> dict[str, Any]:
    """`side_by_side` of fit.json: N_opt on the IsoFLOP budget and D_opt of `target` parameters."""
    return {
        "N_opt": {"C": study.budget, "mark": n_opt_mark(study)},
        "D_opt": {"N": target, "mark": d_opt_mark(study, target)},
        "methods": [
            {
                "method": "approach 1: training curves",
                **_envelope(envelope, study.budget, target),
            },
            {"method": "approach 2: IsoFLOP parabolas", **_parabolas(study, target)},
            {"method": "approach 3: posterior", **_posterior(study, target)},
            {"method": "approach 3: point fit", **_point_fit(study, target)},
            {"method": "curve_fit", **_law(curve_fit(study.runs), study.budget, target)},
        ],
    }


def n_opt_mark(study: Study) -> str:
    """Whether the best size on the budget, with its whole interval, lies among the sizes tried."""
    N, found = study.runs.N, interval(study.posterior.law.n_opt(study.budget))
    best, (low, high) = found["median"], found["ci95"]
    if N.min() <= low and high <= N.max():
        return "trustworthy: its 95% interval lies among the sizes tried"
    if N.min() <= best <= N.max():
        return "uncertain: its 95% interval reaches beyond the sizes tried"
    return f"extrapolation over {_beyond(best, N):.1f} decades of N"


def d_opt_mark(study: Study, target: float) -> str:
    """How many decades of N and C the target is beyond the runs."""
    N = study.runs.N
    if N.min() <= target <= N.max():
        return "interpolation: it lies among the sizes tried"
    C = FLOPS_PER_PARAMETER_TOKEN * target * float(np.median(study.posterior.law.d_opt(target)))
    decades = _beyond(C, study.runs.C)
    return f"extrapolation over {_beyond(target, N):.1f} decades of N and {decades:.1f} of C"


def _beyond(value: float, tried: np.ndarray) -> float:
    return float(max(np.log10(value / tried.max()), np.log10(tried.min() / value), 0.0))


def _law(law: Law | str, C: float, target: float) -> dict[str, Any]:
    if isinstance(law, str):
        return {**NOTHING, "reason": law}
    numbers = {"a": law.a, "b": law.b, "N_opt": law.n_opt(C), "D_opt": law.d_opt(target)}
    return {**{name: float(value) for name, value in numbers.items()}, "ci95": None, "reason": None}


def _point_fit(study: Study, target: float) -> dict[str, Any]:
    found = study.point_fit_refused if study.point_fit is None else study.point_fit.law
    return _law(found, study.budget, target)


def _posterior(study: Study, target: float) -> dict[str, Any]:
    law = study.posterior.law
    draws = {"a": law.a, "b": law.b, "N_opt": law.n_opt(study.budget), "D_opt": law.d_opt(target)}
    found = {name: interval(values) for name, values in draws.items()}
    medians = {name: value["median"] for name, value in found.items()}
    return {**medians, "ci95": {name: value["ci95"] for name, value in found.items()}, "reason": None}


def _parabolas(study: Study, target: float) -> dict[str, Any]:
    found = [parabola for parabola in study.parabolas if parabola.N_opt is not None]
    if not found:
        return {**NOTHING, "reason": "no budget has a parabola with its lowest point among the sizes tried"}
    if len(found) == 1:
        on_budget = found[0].N_opt if found[0] is study.isoflop else None
        reason = "one budget has an optimum; exponents, and D_opt with them, need two"
        return {**NOTHING, "N_opt": on_budget, "reason": reason}
    C, N = np.array([[parabola.C, parabola.N_opt] for parabola in found]).T
    return _power_law(C, N, study.budget, target)


def _envelope(envelope: Envelope | None, C: float, target: float) -> dict[str, Any]:
    if envelope is None or envelope.refused is not None:
        return {**NOTHING, "reason": NO_CURVES if envelope is None else envelope.refused}
    return _power_law(np.array(envelope.C), np.array(envelope.N), C, target)


def _power_law(C: np.ndarray, N: np.ndarray, budget: float, target: float) -> dict[str, Any]:
    """N = k C^a through pairs, in logarithms, and what it says on the budget and for the target."""
    a, log_k = (float(value) for value in np.polyfit(np.log(C), np.log(N), 1))
    if not 0 < a < 1:
        reason = f"the best sizes on {plural(len(C), 'budget')} give N ~ C^{a:.2f}, so D_opt has no exponent"
        return {**NOTHING, "reason": reason}
    log_C = (np.log(target) - log_k) / a
    return {
        "a": a,
        "b": 1 - a,
        "N_opt": float(np.exp(log_k + a * np.log(budget))),
        "D_opt": float(np.exp(log_C) / (FLOPS_PER_PARAMETER_TOKEN * target)),
        "ci95": None,
        "reason": None,
    }
