"""Affine-invariant ensemble sampler (Goodman and Weare 2010) in plain numpy.

Several small ensembles run side by side and never mix, so that their disagreement measures the
Monte-Carlo error of whatever is computed from the draws.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

STRETCH = 2.0  # the usual scale of the stretch move
CHUNK = 250  # steps whose random numbers are drawn at once


@dataclass(frozen=True)
class Draws:
    """`theta` has shape (ensembles, draws, dimensions); `acceptance` is a fraction."""

    theta: np.ndarray
    acceptance: float


def sample(
    log_density: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    steps: int,
    burn_in: int,
    thin: int,
    seed: int,
) -> Draws:
    """Draw from `log_density`, which maps (k, d) to (k,).

    `start` has shape (ensembles, walkers, d), walkers even and above 2d. The first `burn_in` of
    `steps` are dropped, every `thin`-th of the rest is kept. The same seed gives the same draws.
    """
    ensembles, walkers, dimensions = start.shape
    half = walkers // 2
    rng = np.random.default_rng(seed)
    state = [start[:, :half].copy(), start[:, half:].copy()]
    density = [log_density(part.reshape(-1, dimensions)).reshape(ensembles, half) for part in state]
    rows = np.arange(ensembles)[:, None]
    kept: list[np.ndarray] = []
    accepted = 0
    for first in range(0, steps, CHUNK):
        size = min(CHUNK, steps - first)
        shape = (size, 2, ensembles, half)
        stretch = ((STRETCH - 1) * rng.random(shape) + 1) ** 2 / STRETCH
        log_jacobian = (dimensions - 1) * np.log(stretch)
        threshold = np.log(rng.random(shape)) - log_jacobian
        partners = rng.integers(half, size=shape)
        for i in range(size):
            for h in (0, 1):
                partner = state[1 - h][rows, partners[i, h]]
                proposal = partner + stretch[i, h][..., None] * (state[h] - partner)
                proposed = log_density(proposal.reshape(-1, dimensions)).reshape(ensembles, half)
                accept = proposed - density[h] > threshold[i, h]
                np.copyto(state[h], proposal, where=accept[..., None])
                np.copyto(density[h], proposed, where=accept)
                accepted += int(np.count_nonzero(accept))
            step = first + i
            if step >= burn_in and (step - burn_in) % thin == 0:
                kept.append(np.concatenate(state, axis=1))
    theta = np.stack(kept, axis=1).reshape(ensembles, -1, dimensions)
    return Draws(theta=theta, acceptance=accepted / (steps * ensembles * walkers))
