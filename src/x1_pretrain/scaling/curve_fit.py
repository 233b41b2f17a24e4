"""The lab's `scipy.optimize.curve_fit`, for comparison: least squares of the loss from Hoffmann's values.

It has no intervals here: below six points its covariance is infinite or absent, and a bootstrap of its
residuals, which interpolation makes zero, has no width.
"""

import warnings

import numpy as np

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.published import HOFFMANN_ROUNDED
from x1_pretrain.scaling.runs import Runs, plural

MIN_POINTS = 6
MAX_CALLS = 20_000


def refusal(runs: Runs) -> str | None:
    """Why curve_fit cannot be asked about these runs, or None."""
    if runs.points >= MIN_POINTS:
        return None
    return (
        f"{plural(runs.points, 'distinct point')} for five parameters: curve_fit raises below 5, and up to 5 "
        f"its trust-region methods pass through every point and leave A and B where they started; it needs "
        f"{MIN_POINTS} or more"
    )


def curve_fit(runs: Runs) -> Law | str:
    """The law with the least summed squares of L, or a sentence that says why there is none."""
    refused = refusal(runs)
    if refused is not None:
        return refused
    from scipy import optimize  # here, so that a command's start is not twice as slow

    start = HOFFMANN_ROUNDED.law
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the covariance, which is not used; trials may overflow
            found, _ = optimize.curve_fit(
                lambda x, E, A, alpha, B, beta: E + A * x[0] ** -alpha + B * x[1] ** -beta,
                np.stack([runs.N, runs.D]),
                runs.loss_nats,
                p0=[start.E, start.A, start.alpha, start.B, start.beta],
                maxfev=MAX_CALLS,
            )
    except RuntimeError:
        return f"curve_fit did not converge from Hoffmann's values in {MAX_CALLS} calls"
    law = Law(*(float(value) for value in found))
    if not min(law.A, law.B, law.alpha, law.beta) > 0:
        return "curve_fit ended at a law with a coefficient or exponent that is not above 0"
    return law
