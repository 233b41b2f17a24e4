"""The tests on tokens tell order, histogram and repetition apart on a small Markov text."""

import numpy as np
import pytest

from x1_pretrain.spikes.data_tests import (
    batch_statistics,
    bigram_nll,
    count_corpus,
    duplicate_share,
    is_repetitive,
    rarest_ids,
    unigram_kl,
    z_scores,
)
from x1_pretrain.spikes.injections import Injection

V = 64


@pytest.fixture(scope="module")
def text() -> np.ndarray:
    """A Markov chain with four likely successors for each token, over a skewed histogram."""
    rng = np.random.default_rng(0)
    successors = rng.integers(0, V // 2, size=(V, 4))
    stream, token = np.empty(60_000, dtype=np.uint16), 0
    for place, choice in enumerate(rng.integers(0, 4, size=len(stream))):
        token = successors[token, choice]
        stream[place] = token
    return stream


@pytest.fixture(scope="module")
def corpus(text):
    return count_corpus([text[:30_000], text[30_000:]], V)


def spoil(batch: np.ndarray, kind: str) -> np.ndarray:
    return Injection(kind, 1, 1, V, 0).spoil(batch, 1)


def batch_at(text: np.ndarray, index: int) -> np.ndarray:
    return text[index * 8 * 65 : (index + 1) * 8 * 65].reshape(8, 65).astype(np.int64)


def test_counts_are_those_of_the_stream(text, corpus):
    assert corpus.unigrams.sum() == len(text)
    assert corpus.bigram_counts.sum() == len(text) - 2
    assert corpus.rare.tolist() == (corpus.unigrams < 5).tolist()


def test_unigram_kl_is_zero_for_the_corpus_itself(text, corpus):
    assert unigram_kl(text.reshape(10, -1).astype(np.int64), corpus) == pytest.approx(0, abs=1e-3)
    with_one_id = np.full((2, 65), 3, dtype=np.int64)
    expected = -np.log((corpus.unigrams[3] + 0.5) / (len(text) + 0.5 * V))
    assert unigram_kl(with_one_id, corpus) == pytest.approx(expected)


def test_bigram_nll_of_the_source_is_its_entropy(text, corpus):
    assert bigram_nll(batch_at(text, 5), corpus) == pytest.approx(np.log(4), abs=0.3)


def test_shuffle_is_seen_by_bigrams_and_not_by_unigrams(text, corpus):
    normal = [batch_statistics(batch_at(text, index), corpus) for index in range(40)]
    shuffled = spoil(batch_at(text, 50), "shuffle")
    scores = z_scores(batch_statistics(shuffled, corpus), normal)
    assert abs(scores["unigram_kl_nats"]) < 6 < scores["bigram_nll_nats"]


def test_garbage_and_repeat_are_seen(text, corpus):
    normal = [batch_statistics(batch_at(text, index), corpus) for index in range(40)]
    garbage = batch_statistics(spoil(batch_at(text, 50), "garbage"), corpus)
    assert z_scores(garbage, normal)["unigram_kl_nats"] > 6
    repeat = batch_statistics(spoil(batch_at(text, 50), "repeat"), corpus)
    assert repeat.repeated_fraction == 1.0
    assert z_scores(repeat, normal)["zlib_ratio"] < -6


def test_clean_batches_stay_within_bounds(text, corpus):
    normal = [batch_statistics(batch_at(text, index), corpus) for index in range(40)]
    for index in range(60, 100):
        scores = z_scores(batch_statistics(batch_at(text, index), corpus), normal)
        assert max(abs(z) for z in scores.values()) < 6


def test_repetition_needs_32_periods_or_half_a_window():
    rng = np.random.default_rng(0)
    window = rng.permutation(1000)[:513]
    assert not is_repetitive(window)
    window[100:130] = 7  # 30 repeats of one token
    assert not is_repetitive(window)
    window[100:133] = 7
    assert is_repetitive(window)
    long_period = rng.permutation(1000)[:257]
    long_period[:130] = np.resize(np.arange(13), 130)
    assert is_repetitive(long_period)


def test_ids_outside_the_vocabulary_are_counted(text, corpus):
    batch = batch_at(text, 50)
    batch[0, :13] = [V, -1] * 6 + [70_000]
    statistics = batch_statistics(batch, corpus)
    assert statistics.outside_share == pytest.approx(13 / batch.size)
    assert batch_statistics(batch_at(text, 50), corpus).outside_share == 0.0


def test_windows_read_before_are_found_within_a_batch_too(text):
    batch, earlier = batch_at(text, 50), [batch_at(text, 3), batch_at(text, 4)]
    assert duplicate_share(batch, earlier) == 0.0
    batch[:2] = earlier[1][5]
    batch[4] = batch[5]
    assert duplicate_share(batch, earlier) == pytest.approx(3 / 8)


def test_rarest_ids_are_rare_and_rarest_first(corpus):
    ids = rarest_ids(corpus, 3)
    assert len(ids) == 3 and all(corpus.rare[token] for token in ids)
    assert rarest_ids(count_corpus([np.arange(4).repeat(9)], 4)) == ()
