import numpy as np
import pytest

from tests.scaling.conftest import TINY_LAW
from x1_pretrain.scaling.intervals import interval
from x1_pretrain.scaling.next_run import best_per_flop, candidates
from x1_pretrain.scaling.posterior import Sampling, sample_posterior
from x1_pretrain.scaling.prior import load_prior

SHORT = Sampling(walkers=100, steps=2000)


@pytest.fixture(scope="module")
def found(tiny_study):
    return candidates(tiny_study.runs, tiny_study.posterior, 1e9, 1e16)


def test_all_candidates_are_affordable_and_ordered(found):
    assert max(run.flops for run in found) <= 1e16
    shrink = [run.shrink for run in found]
    assert shrink == sorted(shrink) and 0 < shrink[0] < shrink[-1] <= 1
    cheap = best_per_flop(found)
    assert cheap.flops <= found[0].flops and cheap.shrink >= found[0].shrink
    assert np.log(cheap.shrink) <= np.log(found[0].shrink) / 2


def test_the_advised_run_shrinks_the_interval_about_as_foretold(found, tiny_study, runs_of):
    """The run is made, by the true law, and the law inferred anew with it."""
    runs, best = tiny_study.runs, found[0]

    def width(posterior):
        low, high = interval(np.log(posterior.law.d_opt(1e9)))["ci95"]
        return high - low

    N, D = np.append(runs.N, best.N), np.append(runs.D, best.D)
    loss = np.append(runs.loss_nats, TINY_LAW.loss(best.N, best.D))
    after = width(sample_posterior(runs_of(N, D, loss), load_prior(), SHORT))
    assert after / width(tiny_study.posterior) == pytest.approx(best.shrink, abs=0.2)


def test_nothing_is_affordable_for_nothing(tiny_study):
    assert candidates(tiny_study.runs, tiny_study.posterior, 1e9, 1e6) == []
