"""Did the run fall where the law said it would? The prediction against the observed loss."""

from typing import Any

import numpy as np

from x1_pretrain import paths
from x1_pretrain.errors import UserError
from x1_pretrain.scaling.posterior import Posterior


def score_json(
    prediction: dict[str, Any], metrics: dict[str, Any], posterior: Posterior, runs_sha256: str
) -> dict[str, Any]:
    """The content of score.json.

    `metrics` is the run's metrics.json; `posterior` is drawn again from the same runs, and gives the
    `rank`: the fraction of predictive draws below the observation (uniform if the law is calibrated).
    Raises `UserError` if the prediction is of other runs, or of another (N, D).
    """
    if prediction["runs_sha256"] != runs_sha256:
        raise UserError(
            f"{paths.PREDICTION}: it was made from another {paths.RUNS_CSV} (sha256 "
            f"{prediction['runs_sha256'][:12]}..., not {runs_sha256[:12]}...); run the predict stage again"
        )
    planned = {run["model"]: run for run in prediction["planned"]}
    name = metrics["model"]
    if name not in planned:
        raise UserError(
            f"{paths.METRICS}: model {name!r} was not predicted; {paths.PREDICTION} has {', '.join(planned)}"
        )
    run = planned[name]
    for key in ("N", "D"):
        if run[key] != metrics[key]:
            raise UserError(
                f"{paths.METRICS}: {key} is {metrics[key]}, but {paths.PREDICTION} was made for {run[key]}; "
                "train and predict with the same profile"
            )
    observed = float(metrics["val_loss_nats"])
    median, (low, high) = run["loss_nats"]["median"], run["loss_nats"]["ci95"]
    draws = posterior.predictive_loss(run["N"], run["D"])
    return {
        "model": name,
        "N": run["N"],
        "D": run["D"],
        "held_out": run["held_out"],
        "hit": bool(low <= observed <= high),
        "predicted": {"median": median, "ci95": [low, high]},
        "observed": observed,
        "error_nats": observed - median,
        "rank": float(np.mean(draws < observed)),
    }
