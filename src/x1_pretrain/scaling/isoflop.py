"""Approach 2: on one FLOPs budget, the parabola of the loss in ln N and its lowest point.

With three sizes a parabola passes through every point, and its vertex is a good estimate of the best
size on that budget (the error of the form is a few percent for sizes a factor 4 apart), but only if
it opens upward and the vertex lies among the sizes tried. Otherwise there is no optimum to report.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN
from x1_pretrain.scaling.runs import Runs

MIN_SIZES = 3
FLAT = 1e-9  # curvature below this share of the loss is rounding


@dataclass(frozen=True)
class Parabola:
    """loss = c0 + c1 z + c2 z^2 with z = ln(N / N_center), through the runs of one budget of C FLOPs.

    Either `N_opt` is given or `refused` (a code) and `reason` (a sentence) say why it is not.
    """

    C: float
    rows: np.ndarray  # indices into the runs
    N_center: float
    coefficients: tuple[float, float, float] | None
    N_opt: float | None
    loss_opt: float | None
    refused: str | None
    reason: str | None

    def loss(self, N: np.ndarray) -> np.ndarray | None:
        """Nats on the parabola at sizes N; None where there is none."""
        if self.coefficients is None:
            return None
        z = np.log(N / self.N_center)
        c0, c1, c2 = self.coefficients
        return c0 + c1 * z + c2 * z**2

    def as_json(self) -> dict[str, Any]:
        optimum = None
        if self.N_opt is not None:
            D = self.C / (FLOPS_PER_PARAMETER_TOKEN * self.N_opt)
            optimum = {
                "N": self.N_opt,
                "D": D,
                "D_per_N": D / self.N_opt,
                "loss_nats": self.loss_opt,
            }
        return {
            "C": self.C,
            "runs": len(self.rows),
            "optimum": optimum,
            "refused": self.refused,
            "reason": self.reason,
        }


def fit_parabola(runs: Runs, rows: np.ndarray) -> Parabola:
    """The parabola through the runs `rows`, which share a budget."""
    N, loss = runs.N[rows], runs.loss_nats[rows]
    C = float(np.exp(np.log(runs.C[rows]).mean()))
    center = float(np.exp(np.log(N).mean()))
    sizes = len(set(N.tolist()))

    def refuse(code: str, reason: str, coefficients: Any = None) -> Parabola:
        return Parabola(C, rows, center, coefficients, None, None, code, reason)

    if sizes < MIN_SIZES:
        return refuse("too_few_sizes", f"{sizes} sizes on this budget; a parabola needs {MIN_SIZES}")
    c2, c1, c0 = (float(c) for c in np.polyfit(np.log(N / center), loss, 2))
    if c2 <= FLAT * float(loss.mean()):
        return refuse(
            "opens_downward",
            f"the parabola's second-order coefficient is {c2:.3g}, so it has no lowest point",
            (c0, c1, c2),
        )
    N_opt = center * float(np.exp(-c1 / (2 * c2)))
    if not N.min() <= N_opt <= N.max():
        side, end = ("below", N.min()) if N_opt < N.min() else ("above", N.max())
        return refuse(
            "outside_range",
            f"the lowest point, {N_opt:.3g} parameters, lies {side} the sizes tried ({end:.3g} is the "
            f"nearest); add a {'smaller' if side == 'below' else 'larger'} model",
            (c0, c1, c2),
        )
    return Parabola(C, rows, center, (c0, c1, c2), N_opt, c0 - c1**2 / (4 * c2), None, None)


def fit_parabolas(runs: Runs) -> list[Parabola]:
    """One parabola for each budget with at least 3 runs, in order of increasing C; perhaps none."""
    return [fit_parabola(runs, rows) for rows in runs.budgets() if len(rows) >= MIN_SIZES]
