import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from tests.scaling.conftest import TINY_LAW
from x1_pretrain.errors import UserError
from x1_pretrain.scaling import ensemble
from x1_pretrain.scaling.intervals import interval, interval_with_error
from x1_pretrain.scaling.posterior import Sampling, Target, sample_posterior
from x1_pretrain.scaling.prior import Prior, load_prior
from x1_pretrain.scaling.replicates import Points

SHORT = Sampling(walkers=100, steps=1000)


def points_of(sizes: list[float], rng: np.random.Generator, seed_variance: float) -> Points:
    """A point for each of `sizes`, of another D each, with one to three seeds and an error of about 1%."""
    N, D = np.array(sizes), np.geomspace(1e6, 1e8, len(sizes))
    log_loss = np.log(TINY_LAW.loss(N, D)) + 0.01 * rng.standard_normal(len(N))
    count = rng.integers(1, 4, len(N))
    return Points(N, D, log_loss, count, seed_variance, int((count - 1).sum()))


def density_by(covariance: np.ndarray, points: Points, prior: Prior, theta: np.ndarray) -> float:
    """The log density of one theta with the normal density written out."""
    law = prior.law(theta)
    likelihood = multivariate_normal(np.log(law.loss(points.N, points.D)), covariance)
    constant = len(points) / 2 * np.log(2 * np.pi)
    return likelihood.logpdf(points.log_loss) + constant - (prior.standard(theta[None]) ** 2).sum() / 2


def test_the_sampler_draws_a_correlated_normal():
    cov = np.array([[1.0, 0.9], [0.9, 1.0]]) * 4
    precision = np.linalg.inv(cov)
    start = np.random.default_rng(0).standard_normal((4, 20, 2))
    draws = ensemble.sample(
        lambda t: -0.5 * np.einsum("ki,ij,kj->k", t - 3, precision, t - 3),
        start, steps=4000, burn_in=500, thin=5, seed=1,
    )  # fmt: skip
    flat = draws.theta.reshape(-1, 2)
    assert flat.mean(axis=0) == pytest.approx([3, 3], abs=0.15)
    assert np.cov(flat.T) == pytest.approx(cov, abs=0.4)
    assert 0.4 < draws.acceptance < 0.9


@given(
    sizes=st.lists(st.sampled_from([1e5, 2e5, 2e5 + 1, 9e5]), min_size=3, max_size=12),
    seed=st.integers(0, 1000),
    seed_variance=st.sampled_from([0.0, 1e-6, 1e-4]),
)
def test_the_density_is_that_of_a_normal_with_errors_shared_by_size(sizes, seed, seed_variance):
    points = points_of(sizes, np.random.default_rng(seed), seed_variance)
    prior = dataclasses.replace(load_prior(), N=3e5, D=1e7)
    theta = prior.sample(4, seed)
    theta[:, 5] = np.maximum(theta[:, 5], np.log(1e-3))
    found = Target.of(points, prior).log_density(theta)
    same_size = points.N[:, None] == points.N
    for row, value in zip(theta, found, strict=True):
        sigma_squared, rho = np.exp(2 * row[5]), 1 / (1 + np.exp(-row[6]))
        covariance = sigma_squared * (rho * same_size + (1 - rho) * np.eye(len(points)))
        covariance += np.diag(seed_variance / points.count)
        assert value == pytest.approx(density_by(covariance, points, prior, row), rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("seed_variance", [0.0, 1e-5])
def test_where_every_size_has_one_run_the_errors_are_independent_whatever_rho(seed_variance):
    points = points_of([4e5, 1e5, 9e5, 2e5], np.random.default_rng(2), seed_variance)
    prior = dataclasses.replace(load_prior(), N=3e5, D=1e7)
    theta = np.repeat(prior.sample(1, seed=3), 5, axis=0)
    theta[:, 6] = [-6.0, -1.0, 0.0, 3.0, 6.0]
    variance = np.exp(2 * theta[0, 5]) + seed_variance / points.count
    for row, value in zip(theta, Target.of(points, prior).log_density(theta), strict=True):
        assert value == pytest.approx(density_by(np.diag(variance), points, prior, row), rel=1e-9)


def test_errors_shared_by_a_size_are_covered_as_independent_ones_would_not_be(tiny_runs):
    """All runs of the smallest size lie 0.8% above the law, all of the largest 0.8% below."""
    clean, prior = tiny_runs(noise=0.001), load_prior()
    errors = np.repeat([0.008, 0.0, -0.008], 4)
    runs = dataclasses.replace(clean, loss_nats=clean.loss_nats * np.exp(errors))
    no_rho = dataclasses.replace(
        prior, mean=np.append(prior.mean[:6], -9.0), sd=np.append(prior.sd[:6], 0.01)
    )

    def intervals(stated: Prior) -> np.ndarray:
        law = sample_posterior(runs, stated, SHORT).law
        return np.array([interval(draws)["ci95"] for draws in (law.loss(*X1), law.alpha, law.n_opt(6e12))])

    X1 = (442_368, 5_652_480)
    truth = np.array([TINY_LAW.loss(*X1), TINY_LAW.alpha, TINY_LAW.n_opt(6e12)])
    shared, independent = intervals(prior), intervals(no_rho)
    assert ((shared[:, 0] < truth) & (truth < shared[:, 1])).all()
    assert ((independent[:, 0] > truth) | (truth > independent[:, 1])).all()
    assert (np.ptp(shared, axis=1) > 1.5 * np.ptp(independent, axis=1)).all()


def test_three_points_give_the_interval_computed_elsewhere(three_runs):
    """That computation had a narrower prior of E's share, sd 0.4; the rest is the same."""
    prior = load_prior()
    narrow = dataclasses.replace(prior, sd=np.where(prior.sd == prior.sd[1], 0.4, prior.sd))
    law = sample_posterior(three_runs, narrow, Sampling(walkers=100, steps=6000)).law
    found = interval(law.n_opt(1.35e17))
    assert found["ci95"] == pytest.approx([2.89e7, 4.55e7], rel=0.08)
    assert found["median"] == pytest.approx(3.36e7, rel=0.03)
    assert interval(law.alpha)["ci95"] == pytest.approx([0.22, 0.41], abs=0.02)
    low, high = interval(law.d_opt(1e9) / 1e9)["ci95"]
    assert low == pytest.approx(4.3, rel=0.15) and 180 < high < 350


def test_a_wider_prior_of_the_irreducible_loss_leaves_d_opt_as_it_was(three_study):
    law = three_study.posterior.law
    low, high = interval(law.d_opt(1e9) / 1e9)["ci95"]
    assert low == pytest.approx(4.3, rel=0.15) and 180 < high < 350
    low, high = interval(law.E)["ci95"]
    assert low < 0.5 and high > 2.7


def test_the_same_runs_give_the_same_draws_and_another_seed_the_same_answer(tiny_runs):
    prior, runs = load_prior(), tiny_runs()
    first, again = (sample_posterior(runs, prior, SHORT) for _ in range(2))
    assert np.array_equal(first.law.A, again.law.A)
    other = sample_posterior(runs, prior, Sampling(walkers=100, steps=1000, seed=5))
    a = interval_with_error(np.log(first.law.d_opt(1e9)))
    b = interval_with_error(np.log(other.law.d_opt(1e9)))
    for end in (0, 1):
        error = np.hypot(a["mc_error"][end], b["mc_error"][end])
        assert abs(a["ci95"][end] - b["ci95"][end]) < 6 * error + 0.05


def test_a_dozen_points_take_under_two_seconds(tiny_runs):
    before = time.process_time()
    sample_posterior(tiny_runs(), load_prior(), Sampling(walkers=100, steps=6000))
    assert time.process_time() - before < 2.0


def test_twelve_branch_points_say_more_than_three(tiny_study, three_study):
    def width(study):
        low, high = interval(np.log(study.posterior.law.d_opt(1e9)))["ci95"]
        return high - low

    assert width(tiny_study) < width(three_study) / 1.3


def test_intervals_cover_truths_drawn_from_the_prior(tiny_runs):
    """Simulation-based, in small: 20 laws, three quantities; at 95% each misses 1 on average."""
    prior = load_prior()
    truths = prior.sample(20, seed=11)
    hits = np.zeros(3)
    for i, theta in enumerate(truths):
        law = prior.law(theta)
        sigma = np.exp(theta[5])
        runs = tiny_runs(law, noise=sigma, seed=i)
        posterior = sample_posterior(runs, prior, SHORT)
        noise = np.exp(sigma * np.random.default_rng(1000 + i).standard_normal())
        for j, (draws, truth) in enumerate(
            (
                (posterior.law.d_opt(1e9), law.d_opt(1e9)),
                (posterior.law.alpha, law.alpha),
                (posterior.predictive_loss(442_368, 7_536_640), law.loss(442_368, 7_536_640) * noise),
            )
        ):
            low, high = interval(draws)["ci95"]
            hits[j] += low <= truth <= high
    assert (hits >= 16).all() and hits.sum() >= 53, hits


def test_noise_widens_a_prediction(tiny_study):
    posterior = tiny_study.posterior
    mean = interval(posterior.law.loss(442_368, 7_536_640))["ci95"]
    observed = interval(posterior.predictive_loss(442_368, 7_536_640))["ci95"]
    assert observed[0] < mean[0] and observed[1] > mean[1]


@pytest.mark.parametrize(
    ("walkers", "steps", "says"),
    [(30, 6000, "multiple of 4 from 32"), (75, 6000, "75"), (100, 10, "too few")],
)
def test_settings_that_cannot_sample_are_refused(walkers: int, steps: int, says: str):
    with pytest.raises(UserError, match=says):
        Sampling(walkers=walkers, steps=steps)


@pytest.mark.parametrize(("walkers", "ensembles"), [(100, 5), (40, 2), (60, 3), (32, 2)])
def test_walkers_are_divided_into_ensembles_that_span_the_space(walkers: int, ensembles: int):
    assert Sampling(walkers=walkers, steps=600).ensembles == ensembles
