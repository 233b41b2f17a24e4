"""A trainer of a few lines, for tests of the lab's reasoning: a table of bigram logits and SGD."""

import numpy as np
import pytest

from x1_pretrain.spikes.data_tests import Corpus, count_corpus, rarest_ids
from x1_pretrain.spikes.injections import Injection
from x1_pretrain.spikes.lab import AS_IT_WAS, NOTHING, Lab, Step, Stream

V, ROWS, T = 32, 8, 64


def markov_text(tokens: int = 80_000, seed: int = 0) -> np.ndarray:
    """Four likely successors for each token, over half of the vocabulary."""
    rng = np.random.default_rng(seed)
    successors = rng.integers(0, V // 2, size=(V, 4))
    stream, token = np.empty(tokens, dtype=np.uint16), 0
    for place, choice in enumerate(rng.integers(0, 4, size=tokens)):
        token = successors[token, choice]
        stream[place] = token
    return stream


class ToyTrainer:
    """Bigram logits [V, V] trained by SGD. `noise` makes runs differ, as bad hardware would."""

    def __init__(self, lr: float = 12.0, noise: float = 0.0) -> None:
        self.logits = np.zeros((V, V))
        self.lr = lr
        self.noise = noise
        self.rng = np.random.default_rng(0)

    def _log_probabilities(self) -> np.ndarray:
        shifted = self.logits - self.logits.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    def token_losses(self, batch: np.ndarray) -> np.ndarray:
        return -self._log_probabilities()[batch[:, :-1], batch[:, 1:]]

    def loss(self, batch: np.ndarray) -> float:
        return float(self.token_losses(batch).mean())

    def step(self, batch, lr_scale, watch=False, treatment=AS_IT_WAS, event=NOTHING) -> Step:
        if event.fault == "bit_flip":
            self.logits[0, 0] += 1e6
        pairs = np.zeros((V, V))
        np.add.at(pairs, (batch[:, :-1].ravel(), batch[:, 1:].ravel()), 1.0)
        if treatment.masked is not None:
            pairs[:, treatment.masked] = 0.0
        loss = float(-(self._log_probabilities() * pairs).sum() / pairs.sum())
        if event.fault == "nan_gradient":
            return Step(float("nan"), float("nan"), None)
        totals = pairs.sum(axis=1, keepdims=True)
        gradient = (np.exp(self._log_probabilities()) * totals - pairs) / totals.sum()
        gradient += self.noise * self.rng.standard_normal(gradient.shape)
        rms = float(np.sqrt(np.mean(gradient**2)))
        self.logits -= self.lr * lr_scale * gradient / (max(rms, 1.0) if treatment.clip_update else 1.0)
        return Step(loss, float(np.linalg.norm(gradient)), rms if watch else None)

    def snapshot(self) -> np.ndarray:
        return self.logits.copy()

    def restore(self, snapshot: np.ndarray) -> None:
        self.logits = snapshot.copy()


def toy_lab(injection: str, first: int = 170, last: int = 173, noise: float = 0.0, lr: float = 12.0) -> Lab:
    text = markov_text()
    windows = len(text) // (T + 1)

    def clean(number: int) -> np.ndarray:
        chosen = np.random.default_rng(number).integers(0, windows - 40, size=ROWS)
        return np.stack([text[w * (T + 1) : (w + 1) * (T + 1)] for w in chosen]).astype(np.int64)

    held_out = text[-40 * (T + 1) :].reshape(40, T + 1).astype(np.int64)
    rare = rarest_ids(count_corpus([text], V))
    stream = Stream(clean, Injection(injection, first, last, n_vocab=V, seed=0, rare_ids=rare))
    probes = tuple(held_out[i : i + ROWS] for i in range(0, 40, ROWS))
    return Lab(ToyTrainer(lr, noise), stream, probes, warmup_steps=5)


@pytest.fixture(scope="session")
def make_lab():
    """`toy_lab` itself, to be called with an injection."""
    return toy_lab


@pytest.fixture(scope="session")
def markov_corpus() -> Corpus:
    return count_corpus([markov_text()], V)
