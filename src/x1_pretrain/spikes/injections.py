"""Spoiled batches, made on purpose: the incidents of the spike lab, for teaching and for tests.

Each is a pure function of (seed, step), so that a replay of the step meets the same bad batch.
"""

from collections.abc import Callable

import numpy as np

from x1_pretrain.errors import UserError

# The longest period of the repeated n-gram, as in OLMo 2's filter for such documents.
MAX_PERIOD = 13


def garbage(batch: np.ndarray, n_vocab: int, rng: np.random.Generator) -> np.ndarray:
    """Ids uniform over the vocabulary: a wrong file, or a decoder gone wrong."""
    return rng.integers(0, n_vocab, size=batch.shape, dtype=batch.dtype)


def shuffle(batch: np.ndarray, n_vocab: int, rng: np.random.Generator) -> np.ndarray:
    """Each window permuted: the histogram of tokens stays, the order is lost."""
    return rng.permuted(batch, axis=1)


def repeat(batch: np.ndarray, n_vocab: int, rng: np.random.Generator) -> np.ndarray:
    """Each window is one random n-gram of 1 to 13 ids, tiled: the documents OLMo 2 removed."""
    rows, length = batch.shape
    spoiled = np.empty_like(batch)
    for row in range(rows):
        gram = rng.integers(0, n_vocab, size=rng.integers(1, MAX_PERIOD + 1), dtype=batch.dtype)
        spoiled[row] = np.resize(gram, length)
    return spoiled


_FUNCTIONS: dict[str, Callable[[np.ndarray, int, np.random.Generator], np.ndarray]] = {
    "garbage": garbage,
    "shuffle": shuffle,
    "repeat": repeat,
}


def spoil(batch: np.ndarray, injection: str, n_vocab: int, seed: int, step: int) -> np.ndarray:
    """The batch [B, T+1] of token ids as the injection leaves it; a new array of the same dtype.

    Deterministic in (seed, step, injection). Raises `UserError` for an unknown injection.
    """
    if injection not in _FUNCTIONS:
        raise UserError(f"spike.injection: {injection!r} is unknown; valid ones are {', '.join(_FUNCTIONS)}")
    rng = np.random.default_rng([seed, step, list(_FUNCTIONS).index(injection)])
    return _FUNCTIONS[injection](batch, n_vocab, rng)
