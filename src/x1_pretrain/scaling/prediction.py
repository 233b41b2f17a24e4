"""What the law says about runs it has not seen: the tokens for a target size, and the loss of planned runs.

Made before the planned run is looked at; `score.py` compares afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from x1_pretrain.config import Profile
from x1_pretrain.run_spec import planned_tokens
from x1_pretrain.scaling.fit import Study
from x1_pretrain.scaling.identify import contraction
from x1_pretrain.scaling.intervals import interval, interval_with_error
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN
from x1_pretrain.scaling.published import CHINCHILLA_D_OPT_1B, CHINCHILLA_SOURCE, PUBLISHED
from x1_pretrain.shape import Recipe


@dataclass(frozen=True)
class Planned:
    """A run of the study: N non-embedding parameters, D tokens; `held_out` if the fit never sees it."""

    model: str
    N: int
    D: int
    held_out: bool


def planned_runs(profile: Profile, recipe: Recipe, swept: tuple[str, ...]) -> list[Planned]:
    """Every model of the profile with the tokens its FLOPs buy, in whole optimizer steps."""
    return [
        Planned(
            model=name,
            N=shape.N_of(recipe.activation),
            D=planned_tokens(shape, profile.train, recipe),
            held_out=name not in swept,
        )
        for name, shape in profile.models.items()
    ]


def target_json(study: Study, N: float) -> dict[str, Any]:
    """D_opt and D/N of a model of N parameters, and how far beyond the runs that is."""
    runs, law, prior = study.runs, study.posterior.law, study.posterior.prior_law
    D_opt, prior_D_opt = law.d_opt(N), prior.d_opt(N)
    inside = bool(runs.N.min() <= N <= runs.N.max())
    C = FLOPS_PER_PARAMETER_TOKEN * N * float(np.median(D_opt))
    return {
        "N": N,
        "kind": "interpolation" if inside else "extrapolation",
        "D_opt": {**interval_with_error(D_opt), "prior_ci95": interval(prior_D_opt)["ci95"]},
        "D_per_N": {
            **interval_with_error(D_opt / N),
            "prior_ci95": interval(prior_D_opt / N)["ci95"],
        },
        "loss_nats": interval_with_error(law.loss(N, D_opt)),
        "C": C,
        "decades_in_N": float(np.log10(N / runs.N.max())),
        "decades_in_C": float(np.log10(C / runs.C.max())),
        "prior_share": contraction(D_opt, prior_D_opt),
    }


def planned_json(study: Study, run: Planned) -> dict[str, Any]:
    """The interval in which the run's own observed loss should fall, noise included."""
    return {
        "model": run.model,
        "N": run.N,
        "D": run.D,
        "C": FLOPS_PER_PARAMETER_TOKEN * run.N * run.D,
        "held_out": run.held_out,
        "loss_nats": interval_with_error(study.posterior.predictive_loss(run.N, run.D)),
    }


def published_json(N: float) -> list[dict[str, Any]]:
    """The published laws' tokens for N parameters."""
    return [
        {
            "name": published.name,
            "source": published.source,
            "D_opt": float(published.law.d_opt(N)),
            "D_per_N": float(published.law.d_opt(N) / N),
        }
        for published in PUBLISHED
    ]


def prediction_json(
    study: Study, target_params: float, planned: list[Planned], text: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of prediction.json. `text` = {"tokenizer", "domains"}: on what the runs were trained."""
    return {
        "runs_sha256": study.runs.sha256,
        "identified": study.identified,
        "text": dict(text),
        "target": target_json(study, target_params),
        "planned": [planned_json(study, run) for run in planned],
        "published": published_json(target_params),
        "chinchilla_table": {
            "N": 1e9,
            "D_opt": list(CHINCHILLA_D_OPT_1B),
            "source": CHINCHILLA_SOURCE,
        },
    }
