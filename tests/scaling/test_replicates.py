import numpy as np
import pytest

from x1_pretrain.scaling.intervals import interval
from x1_pretrain.scaling.posterior import Sampling, sample_posterior
from x1_pretrain.scaling.prior import load_prior
from x1_pretrain.scaling.replicates import Points

SHORT = Sampling(walkers=100, steps=1000)


def repeated(runs_of, runs, seeds: int, noise: float):
    """Every point of `runs` with so many seeds, each with its own noise of ln L."""
    N, D, loss = (np.tile(values, seeds) for values in (runs.N, runs.D, runs.loss_nats))
    return runs_of(N, D, loss * np.exp(noise * np.random.default_rng(5).standard_normal(len(N))))


def test_points_are_means_of_ln_loss_in_the_order_of_the_file(runs_of):
    runs = runs_of([2e6, 1e6, 2e6, 3e6], [1e9, 1e9, 1e9, 1e9], [3.0, 4.0, 3.1, 2.5])
    points = Points.of(runs)
    assert points.N.tolist() == [2e6, 1e6, 3e6] and points.count.tolist() == [2, 1, 1]
    assert points.log_loss[0] == pytest.approx(np.log(3.0 * 3.1) / 2)
    assert points.seed_variance == pytest.approx(np.var(np.log([3.0, 3.1]), ddof=1))
    assert points.as_json() == {"sd": points.seed_variance**0.5, "degrees_of_freedom": 1}


def test_the_pooled_variance_is_that_of_the_seeds_whatever_the_misfit(runs_of, tiny_runs):
    points = Points.of(repeated(runs_of, tiny_runs(noise=0.05), seeds=20, noise=0.004))
    assert points.degrees_of_freedom == 12 * 19
    assert points.seed_variance**0.5 == pytest.approx(0.004, rel=0.12)


def test_without_a_second_seed_the_floor_is_unknown_and_nothing_changes(tiny_runs):
    points = Points.of(tiny_runs())
    assert points.seed_variance == 0 and "second seed" in points.as_json()["refused"]


def test_the_seeds_scatter_is_a_floor_of_the_predicted_noise(runs_of, tiny_runs):
    runs = repeated(runs_of, tiny_runs(noise=0.0), seeds=3, noise=0.02)
    floor = Points.of(runs).seed_variance ** 0.5
    posterior = sample_posterior(runs, load_prior(), SHORT)
    assert posterior.sigma.min() > floor
    assert np.quantile(posterior.rho, 0.9) < 0.25  # most of the error is the seeds', which no size shares
    low, high = interval(np.log(posterior.predictive_loss(442_368, 5_652_480)))["ci95"]
    assert high - low > 3.9 * floor


def test_more_seeds_at_the_same_points_narrow_the_law(runs_of, tiny_runs):
    clean = tiny_runs(noise=0.0)
    widths = []
    for seeds in (2, 12):
        law = sample_posterior(repeated(runs_of, clean, seeds, 0.01), load_prior(), SHORT).law
        low, high = interval(law.beta)["ci95"]
        widths.append(high - low)
    assert widths[1] < 0.8 * widths[0]
