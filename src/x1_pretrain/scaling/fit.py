"""Everything inferred from a table of runs: point fit, posterior, parabolas and the verdict on them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from x1_pretrain.config import Fit
from x1_pretrain.scaling import point_fit
from x1_pretrain.scaling.identify import PARAMETERS, Jacobian, doubts, jacobian
from x1_pretrain.scaling.isoflop import Parabola, fit_parabolas
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.point_fit import PointFit
from x1_pretrain.scaling.posterior import Posterior, Sampling, sample_posterior
from x1_pretrain.scaling.prior import DEFAULT, Prior, load_prior
from x1_pretrain.scaling.runs import Runs


@dataclass(frozen=True)
class Study:
    """The runs and all that was inferred from them; the same input gives the same bits."""

    runs: Runs
    prior: Prior
    posterior: Posterior
    parabolas: list[Parabola]
    point_fit: PointFit | None
    point_fit_refused: str | None
    jacobian: Jacobian
    doubts: list[str]

    @property
    def identified(self) -> bool:
        return not self.doubts

    @property
    def isoflop(self) -> Parabola | None:
        """The parabola of the largest budget: the sweep's own IsoFLOP set."""
        return self.parabolas[-1] if self.parabolas else None

    @property
    def budget(self) -> float:
        """C of the IsoFLOP set, or the largest C of any run."""
        return self.isoflop.C if self.isoflop else float(self.runs.C.max())

    @property
    def budget_rows(self) -> np.ndarray:
        """Indices of the runs that have it."""
        return self.isoflop.rows if self.isoflop else np.array([np.argmax(self.runs.C)])


def median_law(posterior: Posterior) -> Law:
    """Medians of the posterior, parameter by parameter."""
    return Law(**{name: float(np.median(getattr(posterior.law, name))) for name in PARAMETERS})


def infer(runs: Runs, settings: Fit, prior_file: Path = DEFAULT) -> Study:
    """Fit, posterior, parabolas and verdict. About a second for a dozen runs; raises `UserError`."""
    prior = load_prior(prior_file)
    posterior = sample_posterior(runs, prior, Sampling(settings.walkers, settings.draws))
    refused = point_fit.refusal(runs)
    matrix = jacobian(runs, median_law(posterior))
    return Study(
        runs=runs,
        prior=prior,
        posterior=posterior,
        parabolas=fit_parabolas(runs),
        point_fit=None if refused else point_fit.point_fit(runs),
        point_fit_refused=refused,
        jacobian=matrix,
        doubts=doubts(runs, posterior, matrix),
    )
