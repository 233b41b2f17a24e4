"""The prior of a law: a data file with its sources, and the coordinates the posterior is sampled in.

Seven coordinates theta = (ln T, logit s, ln r, ln alpha, ln beta, ln sigma, logit rho) at the centre of the
runs, the geometric means (N, D): T = L(N, D), s = E / T, r = (A / N^alpha) / (B / D^beta), sigma = standard
deviation of ln L, rho = the share of its variance that runs of one size have in common. Shares instead of
an absolute E make one prior serve every tokenizer.

The prior of r alone is stated elsewhere, at the reference point (N0, D0) of the published laws: what they
agree on is how tokens and parameters balance at their own scale. On how much of the loss is irreducible
they say nothing about another text, so s has a wide prior where the runs are.
"""

import dataclasses
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain.deliverables.files import read_json
from x1_pretrain.errors import UserError
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.runs import Runs

COORDINATES = ("ln_T", "logit_s", "ln_r", "ln_alpha", "ln_beta", "ln_sigma", "logit_rho")
DEFAULT = Path(str(resources.files("x1_pretrain.scaling") / "prior.json"))


@dataclass(frozen=True)
class Prior:
    """Independent normals of the coordinates: ln r at (N0, D0), the others at the runs' centre (N, D)."""

    N0: float
    D0: float
    mean: np.ndarray
    sd: np.ndarray
    content: dict[str, Any]  # the file as it was read, printed in fit.json
    N: float
    D: float

    def at(self, runs: Runs) -> "Prior":
        """The same prior for runs with another centre."""
        N, D = (float(np.exp(np.log(values).mean())) for values in (runs.N, runs.D))
        return dataclasses.replace(self, N=N, D=D)

    def _way_to_reference(self, theta: np.ndarray) -> np.ndarray:
        """ln r at (N0, D0) minus ln r at the centre. A shift by other coordinates keeps volumes."""
        to_N0, to_D0 = np.log(self.N0 / self.N), np.log(self.D0 / self.D)
        return np.exp(theta[:, 4]) * to_D0 - np.exp(theta[:, 3]) * to_N0

    def standard(self, theta: np.ndarray) -> np.ndarray:
        """Distances of draws (k, 7) from the prior's means, in its standard deviations; shape (k, 7)."""
        distance = theta - self.mean
        distance[:, 2] += self._way_to_reference(theta)
        return distance / self.sd

    def sample(self, count: int, seed: int) -> np.ndarray:
        """`count` draws of theta, shape (count, 7)."""
        normal = np.random.default_rng(seed).standard_normal((count, len(COORDINATES)))
        theta = self.mean + self.sd * normal
        theta[:, 2] -= self._way_to_reference(theta)
        return theta

    def law(self, theta: np.ndarray) -> Law:
        """The laws of draws `theta` of shape (..., 7): fields of shape (...)."""
        T, s, r = np.exp(theta[..., 0]), 1 / (1 + np.exp(-theta[..., 1])), np.exp(theta[..., 2])
        alpha, beta = np.exp(theta[..., 3]), np.exp(theta[..., 4])
        reducible = T * (1 - s)
        return Law(
            E=T * s,
            A=reducible * r / (1 + r) * np.exp(alpha * np.log(self.N)),
            alpha=alpha,
            B=reducible / (1 + r) * np.exp(beta * np.log(self.D)),
            beta=beta,
        )


def load_prior(path: Path = DEFAULT) -> Prior:
    """A prior file. Raises `UserError` naming the key that is missing or out of range."""
    content = read_json(path)
    try:
        coordinates = [content["coordinates"][name] for name in COORDINATES]
        printed = {key: content[key] for key in ("about", "reference", "coordinates", "sources")}
        mean = np.array([float(c["mean"]) for c in coordinates])
        sd = np.array([float(c["sd"]) for c in coordinates])
        N0, D0 = float(content["reference"]["N0"]), float(content["reference"]["D0"])
    except KeyError as error:
        raise UserError(
            f"{path}: the key {error} is missing; a prior gives about, sources, reference.N0, reference.D0 "
            f"and, in coordinates, mean, sd and meaning of {', '.join(COORDINATES)}"
        ) from error
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: a mean, sd or reference is not a number ({error})") from error
    if not (np.isfinite(mean).all() and (sd > 0).all() and np.isfinite(sd).all() and N0 > 0 and D0 > 0):
        raise UserError(f"{path}: every mean must be finite, and every sd, N0 and D0 above 0")
    return Prior(N0=N0, D0=D0, mean=mean, sd=sd, content=printed, N=N0, D=D0)
