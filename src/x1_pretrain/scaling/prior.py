"""The prior of a law: a data file with its sources, and the coordinates the posterior is sampled in.

Six coordinates theta = (ln T, logit s, ln r, ln alpha, ln beta, ln sigma): T = L(N0, D0), s = E / T,
r = (A / N0^alpha) / (B / D0^beta), sigma = standard deviation of ln L. Shares instead of an absolute E
make one prior serve every tokenizer.
"""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain.deliverables.files import read_json
from x1_pretrain.errors import UserError
from x1_pretrain.scaling.law import Law

COORDINATES = ("ln_T", "logit_s", "ln_r", "ln_alpha", "ln_beta", "ln_sigma")
DEFAULT = Path(str(resources.files("x1_pretrain.scaling") / "prior.json"))


@dataclass(frozen=True)
class Prior:
    """Independent normals of the six coordinates at the reference point N0 (parameters), D0 (tokens)."""

    N0: float
    D0: float
    mean: np.ndarray
    sd: np.ndarray
    content: dict[str, Any]  # the file as it was read, printed in fit.json

    def sample(self, count: int, seed: int) -> np.ndarray:
        """`count` draws of theta, shape (count, 6)."""
        return self.mean + self.sd * np.random.default_rng(seed).standard_normal((count, 6))

    def law(self, theta: np.ndarray) -> Law:
        """The laws of draws `theta` of shape (..., 6): fields of shape (...)."""
        T, s, r = np.exp(theta[..., 0]), 1 / (1 + np.exp(-theta[..., 1])), np.exp(theta[..., 2])
        alpha, beta = np.exp(theta[..., 3]), np.exp(theta[..., 4])
        reducible = T * (1 - s)
        return Law(
            E=T * s,
            A=reducible * r / (1 + r) * np.exp(alpha * np.log(self.N0)),
            alpha=alpha,
            B=reducible / (1 + r) * np.exp(beta * np.log(self.D0)),
            beta=beta,
        )


def move_reference(theta: np.ndarray, ln_N: float, ln_D: float) -> np.ndarray:
    """The same laws in the coordinates of another reference point, (N0 e^ln_N, D0 e^ln_D).

    `theta` has shape (k, 6). The map keeps volumes: (ln T, logit s, ln r) and (ln E, ln term_N,
    ln term_D) differ by a Jacobian of exactly 1, and moving shifts ln term_N by -alpha ln_N and
    ln term_D by -beta ln_D. So a density needs no correction.
    """
    s = 1 / (1 + np.exp(-theta[:, 1]))
    step_N, step_D = np.exp(theta[:, 3]) * ln_N, np.exp(theta[:, 4]) * ln_D
    d_share = (1 - s) / (1 + np.exp(theta[:, 2]))
    reducible = (1 - s - d_share) * np.exp(-step_N) + d_share * np.exp(-step_D)
    moved = theta.copy()
    moved[:, 0] += np.log(s + reducible)
    moved[:, 1] = np.log(s / reducible)
    moved[:, 2] += step_D - step_N
    return moved


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
    return Prior(N0=N0, D0=D0, mean=mean, sd=sd, content=printed)
