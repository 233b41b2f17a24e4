"""Runs that differ in the seed alone: their scatter is noise that no law can explain, a floor.

Rows of one (N, D) become one point, the mean of ln L; its seed noise shrinks with their number, the misfit
of the law's form does not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from x1_pretrain.scaling.runs import Runs


@dataclass(frozen=True)
class Points:
    """Distinct (N, D) with the mean of ln L over the `count` runs of each; arrays of one element a point.

    `seed_variance` is that of ln L of a single run, pooled over all points; 0 where no point was repeated.
    """

    N: np.ndarray
    D: np.ndarray
    log_loss: np.ndarray
    count: np.ndarray
    seed_variance: float
    degrees_of_freedom: int

    @classmethod
    def of(cls, runs: Runs) -> "Points":
        log_loss = np.log(runs.loss_nats)
        pairs, first, which = np.unique(
            np.stack([runs.N, runs.D], axis=1), axis=0, return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # as in the file
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        which = position[which.ravel()]
        count = np.bincount(which)
        mean = np.bincount(which, weights=log_loss) / count
        freedom = len(runs) - len(count)
        variance = float(((log_loss - mean[which]) ** 2).sum() / freedom) if freedom else 0.0
        return cls(pairs[order, 0], pairs[order, 1], mean, count, variance, freedom)

    def __len__(self) -> int:
        return len(self.count)

    def as_json(self) -> dict[str, Any]:
        """`noise_floor` of fit.json."""
        if not self.degrees_of_freedom:
            return {"refused": "no (N, D) was run with a second seed, so the noise of a seed is not known"}
        return {"sd": self.seed_variance**0.5, "degrees_of_freedom": self.degrees_of_freedom}
