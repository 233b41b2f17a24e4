"""Median and 95% interval of draws, with the Monte-Carlo error of the interval's ends."""

from typing import Any

import numpy as np

LEVELS = (0.025, 0.975)


def interval(draws: np.ndarray) -> dict[str, Any]:
    """{"median", "ci95"} of draws of any shape."""
    low, median, high = (float(v) for v in np.quantile(draws, (LEVELS[0], 0.5, LEVELS[1])))
    return {"median": median, "ci95": [low, high]}


def interval_with_error(draws: np.ndarray) -> dict[str, Any]:
    """`interval`, and `mc_error`: the standard error of both ends, from the spread of the ensembles.

    `draws` has shape (ensembles, draws).
    """
    ends = np.quantile(draws, LEVELS, axis=1)
    errors = ends.std(axis=1, ddof=1) / np.sqrt(draws.shape[0])
    return {**interval(draws), "mc_error": [float(e) for e in errors]}
