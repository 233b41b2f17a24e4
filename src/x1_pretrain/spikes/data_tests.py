"""Tests on the tokens alone: is this batch drawn from the corpus, in the corpus's order?

The histogram of tokens does not suffice: a shuffled batch has exactly a clean one's. So several views:
unigrams, bigrams, repetition, compressibility, ids out of range, duplicates, each set against batches known
to be normal.
"""

import dataclasses
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from x1_pretrain.spikes.monitor import robust_scale

# Weight, in counts, of the unigram distribution in the bigram one (a Dirichlet prior).
BIGRAM_PRIOR = 64.0
UNIGRAM_PRIOR = 0.5
# A token is rare if the corpus holds it fewer than 5 times, or less than once in a million.
RARE_COUNT, RARE_SHARE = 5, 1e-6
# OLMo 2 drops documents in which an n-gram of 1 to 13 tokens repeats at least 32 times. A short
# window cannot hold 32 long periods: there, repetition over half of the window counts too.
MAX_PERIOD, MIN_REPEATS = 13, 32
# Spread of a statistic over normal batches below which a difference is not news.
SD_FLOORS = {
    "unigram_kl_nats": 0.01,
    "bigram_nll_nats": 0.02,
    "repeated_fraction": 0.05,
    "zlib_ratio": 0.005,
    "outside_share": 1e-3,
}


@dataclass(frozen=True)
class Corpus:
    """Counts of a corpus: unigrams [V], and bigrams as sorted codes `first * V + second`."""

    unigrams: np.ndarray
    bigram_codes: np.ndarray
    bigram_counts: np.ndarray

    @property
    def n_vocab(self) -> int:
        return len(self.unigrams)

    @property
    def unigram_probabilities(self) -> np.ndarray:
        """[V], smoothed so that none is zero."""
        counts = self.unigrams + UNIGRAM_PRIOR
        return counts / counts.sum()

    @property
    def rare(self) -> np.ndarray:
        """[V] bool: ids the corpus hardly has."""
        return (self.unigrams < RARE_COUNT) | (self.unigrams < RARE_SHARE * self.unigrams.sum())


@dataclass(frozen=True)
class BatchStatistics:
    """What one batch looks like; nats where the name says so, the others are shares of 1."""

    unigram_kl_nats: float
    bigram_nll_nats: float
    repeated_fraction: float
    zlib_ratio: float
    outside_share: float  # ids that the vocabulary does not have


def count_corpus(chunks: Iterable[np.ndarray], n_vocab: int) -> Corpus:
    """Counts over pieces of token stream (1-D, ids below `n_vocab`). Bigrams do not span pieces."""
    unigrams = np.zeros(n_vocab, dtype=np.int64)
    codes = []
    for chunk in chunks:
        ids = np.asarray(chunk, dtype=np.int64)
        unigrams += np.bincount(ids, minlength=n_vocab)
        codes.append(ids[:-1] * n_vocab + ids[1:])
    joined = np.concatenate(codes) if codes else np.zeros(0, dtype=np.int64)
    bigram_codes, bigram_counts = np.unique(joined, return_counts=True)
    return Corpus(unigrams, bigram_codes, bigram_counts)


def rarest_ids(corpus: Corpus, n: int = 8) -> tuple[int, ...]:
    """Up to `n` ids that the corpus hardly has, the rarest first; none if it has no such ids."""
    order = np.argsort(corpus.unigrams, kind="stable")
    return tuple(int(token) for token in order[:n] if corpus.rare[token])


def unigram_kl(batch: np.ndarray, corpus: Corpus) -> float:
    """KL(batch || corpus) of the token histograms, in nats."""
    counts = np.bincount(batch.ravel(), minlength=corpus.n_vocab)
    p = counts / counts.sum()
    q = corpus.unigram_probabilities
    present = p > 0
    return float(np.sum(p[present] * np.log(p[present] / q[present])))


def bigram_nll(batch: np.ndarray, corpus: Corpus) -> float:
    """Mean -ln p(next | previous) of a batch [B, T+1] under the corpus's bigrams, in nats."""
    first = batch[:, :-1].ravel().astype(np.int64)
    second = batch[:, 1:].ravel().astype(np.int64)
    codes = first * corpus.n_vocab + second
    places = np.searchsorted(corpus.bigram_codes, codes)
    places = np.minimum(places, max(len(corpus.bigram_codes) - 1, 0))
    if len(corpus.bigram_codes):
        found = corpus.bigram_codes[places] == codes
        pair_counts = np.where(found, corpus.bigram_counts[places], 0)
    else:
        pair_counts = np.zeros(len(codes))
    prior = BIGRAM_PRIOR * corpus.unigram_probabilities[second]
    probability = (pair_counts + prior) / (corpus.unigrams[first] + BIGRAM_PRIOR)
    return float(-np.log(probability).mean())


def is_repetitive(window: np.ndarray) -> bool:
    """Does a token n-gram of 1 to 13 ids repeat 32 times in a row, or over half of the window?"""
    for period in range(1, min(MAX_PERIOD, len(window) // 2) + 1):
        needed = min(MIN_REPEATS * period, max(len(window) // 2, 2 * period))
        if _longest_run(window[period:] == window[:-period]) + period >= needed:
            return True
    return False


def _longest_run(equal: np.ndarray) -> int:
    """Length of the longest run of True."""
    edges = np.flatnonzero(~equal)
    bounds = np.concatenate(([-1], edges, [len(equal)]))
    return int(np.diff(bounds).max() - 1)


def batch_statistics(batch: np.ndarray, corpus: Corpus) -> BatchStatistics:
    """The statistics of one batch [B, T+1]; `zlib_ratio` is over the ids as 16-bit words.

    Ids outside the vocabulary are counted, and taken as its last id elsewhere.
    """
    raw = batch.astype("<u2" if corpus.n_vocab <= 1 << 16 else "<u4").tobytes()
    inside = np.where((batch >= 0) & (batch < corpus.n_vocab), batch, corpus.n_vocab - 1)
    return BatchStatistics(
        unigram_kl_nats=unigram_kl(inside, corpus),
        bigram_nll_nats=bigram_nll(inside, corpus),
        repeated_fraction=float(np.mean([is_repetitive(window) for window in batch])),
        zlib_ratio=len(zlib.compress(raw, 6)) / len(raw),
        outside_share=float(np.mean(inside != batch)),
    )


def duplicate_share(batch: np.ndarray, earlier: Iterable[np.ndarray]) -> float:
    """The share of a batch's windows [B, T+1] that stand in one of the earlier batches, or twice in it."""
    read = {window.tobytes() for other in earlier for window in other}
    again = 0
    for window in batch:
        again += window.tobytes() in read
        read.add(window.tobytes())
    return again / len(batch)


def z_scores(suspect: BatchStatistics, normal: Sequence[BatchStatistics]) -> dict[str, float]:
    """Each statistic of `suspect` in robust sd from the median of the normal batches."""
    scores = {}
    for field in dataclasses.fields(BatchStatistics):
        values = [getattr(statistics, field.name) for statistics in normal]
        median, sd = robust_scale(values, SD_FLOORS[field.name])
        scores[field.name] = (getattr(suspect, field.name) - median) / sd
    return scores
