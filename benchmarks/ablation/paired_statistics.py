"""What paired runs say about a switch: pure functions, so that a verdict can be checked by hand.

Two runs with one seed read the same batches in the same order, so the difference of their losses has far
less noise than either loss; every statistic here is over such differences, switch minus baseline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

LEVEL = 0.05  # of tests; intervals are of 95%
POWER = 0.8
MOST_SEEDS = 1000  # beyond this many the answer is "more than anyone will run"
SMOOTHING = 20  # the training loss is smoothed as the mean of this many rows of the curve

Verdict = Literal["better", "worse", "not distinguishable"]


@dataclass(frozen=True)
class Comparison:
    """Paired differences in nats: mean, its 95% t-interval, spread, and the two-sided p of no effect."""

    n: int
    mean: float
    low: float
    high: float
    sd: float
    p: float


def compare(differences: Sequence[float]) -> Comparison:
    """Student's paired t over at least two differences; raises `ValueError` for fewer.

    Differences that are all the same leave no doubt: p is 1 where they are zero, else 0.
    """
    n = len(differences)
    if n < 2:
        raise ValueError(f"{n} paired difference; an interval takes at least 2")
    mean, sd = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if max(differences) == min(differences):
        return Comparison(n, mean, mean, mean, 0.0, 1.0 if mean == 0 else 0.0)
    error = sd / n**0.5
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    return Comparison(n, mean, mean - half, mean + half, sd, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values (Holm 1979), in the order given: below a level, they hold it as a family."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def verdict(comparison: Comparison, adjusted_p: float) -> Verdict:
    """A lower loss is better; nothing is said unless the adjusted p allows it."""
    if adjusted_p >= LEVEL:
        return "not distinguishable"
    return "better" if comparison.mean < 0 else "worse"


def seeds_needed(comparison: Comparison, family: int) -> int | None:
    """Pairs that would show a difference of the size seen, with power 0.8, as one of `family` tests.

    By the noncentral t, at Holm's strictest level, `LEVEL` / family. None: more than `MOST_SEEDS`.
    """
    if comparison.mean == 0:
        return None
    if comparison.sd == 0:
        return 2
    n = np.arange(2, MOST_SEEDS + 1)
    critical = stats.t.ppf(1 - LEVEL / family / 2, n - 1)
    shift = abs(comparison.mean) / comparison.sd * np.sqrt(n)
    enough = stats.nct.sf(critical, n - 1, shift) >= POWER
    return int(n[enough.argmax()]) if enough.any() else None


def smoothed(losses: Sequence[float]) -> np.ndarray:
    """Trailing means over `SMOOTHING` losses, from row `SMOOTHING` - 1 on; over all if there are fewer."""
    width = min(SMOOTHING, len(losses))
    return np.convolve(losses, np.full(width, 1 / width), mode="valid")


def first_reach(curves: Sequence[Sequence[float]], baselines: Sequence[Sequence[float]]) -> int | None:
    """The first row at which the mean smoothed curve is at or below the baselines' mean last value.

    Curves are training losses, one per seed, both lists for the same seeds. None: it stays above.
    """
    target = np.mean([smoothed(losses)[-1] for losses in baselines])
    curve = np.mean([smoothed(losses) for losses in curves], axis=0)
    skipped = len(curves[0]) - len(curve)
    below = curve <= target + 1e-12  # the baseline reaches its own last value, whatever the rounding
    return int(below.argmax()) + skipped if below.any() else None


def gap_at_end(curves: Sequence[Sequence[float]], baselines: Sequence[Sequence[float]]) -> float:
    """How far the mean smoothed curve ends above the baselines', in nats; negative: below."""
    return float(
        np.mean([smoothed(losses)[-1] for losses in curves])
        - np.mean([smoothed(losses)[-1] for losses in baselines])
    )
