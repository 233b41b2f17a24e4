"""How much the answer depends on choices that papers make in silence: the same runs, sixteen times.

Robust or squared error, which parameters N counts, which FLOPs a budget counts, and whether runs with fewer
than half a token per parameter, where the form of the law breaks, are kept.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from x1_pretrain.scaling import point_fit
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN, Law
from x1_pretrain.scaling.runs import Runs

OBJECTIVES = {"huber": point_fit.HUBER_DELTA, "mse": point_fit.SQUARED}
MIN_TOKENS_PER_PARAMETER = 0.5
KEPT = f"D/N >= {MIN_TOKENS_PER_PARAMETER}"


@dataclass(frozen=True)
class Cost:
    """FLOPs of a run as scale * N^power * D: 6ND is (6, 1); a small model's head makes the power smaller."""

    scale: float
    power: float

    @classmethod
    def fitted(cls, N: np.ndarray, D: np.ndarray, flops: np.ndarray) -> "Cost":
        """The power law through counted FLOPs per token; needs two sizes."""
        power, log_scale = np.polyfit(np.log(N), np.log(flops / D), 1)
        return cls(float(np.exp(log_scale)), float(power))

    def flops(self, N: np.ndarray, D: np.ndarray) -> np.ndarray:
        return self.scale * N**self.power * D

    def n_opt(self, law: Law, C: float) -> float:
        """The best size for C FLOPs: alpha A / N^alpha = power beta B / D^beta at scale N^power D = C."""
        ratio = law.alpha * law.A / (self.power * law.beta * law.B)
        total = law.alpha + self.power * law.beta
        return float(ratio ** (1 / total) * (C / self.scale) ** (law.beta / total))

    def d_opt(self, law: Law, N: float) -> float:
        """Tokens at which N is the best size for the FLOPs spent."""
        ratio = self.power * law.beta * law.B / (law.alpha * law.A)
        return float((ratio * N**law.alpha) ** (1 / law.beta))


SIX_ND = Cost(FLOPS_PER_PARAMETER_TOKEN, 1.0)


def sensitivity(runs: Runs, budget: np.ndarray, target: float) -> dict[str, Any]:
    """`sensitivity` of fit.json. `budget`: rows of the IsoFLOP set; `target`: a number of parameters."""
    refused = point_fit.refusal(runs)
    if refused is not None:
        return {"refused": refused}
    sizes, left_out = {"N": runs.N}, []
    if runs.N_total is None:
        left_out.append("N_total: runs.csv has no such column")
    else:
        sizes["N_total"] = runs.N_total
    if runs.C_counted is None:
        left_out.append("counted FLOPs: runs.csv has no column C_counted")
    enough = runs.D / runs.N >= MIN_TOKENS_PER_PARAMETER
    subsets = {"all": np.ones(len(runs), dtype=bool)}
    if enough.all():
        left_out.append(f"{KEPT}: all runs are")
    elif point_fit.refusal(runs.take(enough)) is not None:
        left_out.append(f"{KEPT}: too few runs would be left")
    else:
        subsets[KEPT] = enough
    rows = []
    for rows_name, mask in subsets.items():
        kept = runs.take(mask)
        for size_name, N in sizes.items():
            costs = {"6ND": (SIX_ND, SIX_ND.flops(N, runs.D))}
            if runs.C_counted is not None:
                costs["counted"] = (Cost.fitted(N, runs.D, runs.C_counted), runs.C_counted)
            for objective, delta in OBJECTIVES.items():
                law = point_fit.point_fit(kept.with_sizes(N[mask]), delta).law
                for flops_name, (cost, flops) in costs.items():
                    C = float(np.exp(np.log(flops[budget]).mean()))
                    D = cost.d_opt(law, target)
                    rows.append(
                        {
                            "objective": objective,
                            "N_is": size_name,
                            "flops": flops_name,
                            "rows": rows_name,
                            "runs": len(kept),
                            "E": law.E,
                            "alpha": law.alpha,
                            "beta": law.beta,
                            "N_opt": cost.n_opt(law, C),
                            "D_opt": D,
                            "D_per_N": D / target,
                        }
                    )
    return {"rows": rows, "left_out": left_out}
