import dataclasses
import json

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.point_fit import HUBER_DELTA, Problem, point_fit
from x1_pretrain.scaling.published import HOFFMANN


@pytest.fixture
def besiroglu(reference, runs_of):
    def runs(excluded: bool):
        rows = reference("besiroglu_245.csv")
        kept = [row for row in rows if excluded or row["excluded_top5"] == "False"]
        return runs_of(*([float(row[key]) for row in kept] for key in ("N", "D", "loss")))

    return runs


@pytest.fixture
def acceptance(reference_folder):
    return json.loads((reference_folder / "acceptance_tests.json").read_text())


def test_besiroglus_optimum_is_met_to_the_stated_digits(besiroglu, acceptance):
    fit = point_fit(besiroglu(excluded=False))
    optimum, rtol = acceptance["besiroglu_point"]["optimum"], acceptance["besiroglu_point"]["rtol"]
    for name in ("E", "A", "alpha", "B", "beta"):
        assert getattr(fit.law, name) == pytest.approx(optimum[name], rel=rtol[name])
    assert fit.objective == pytest.approx(optimum["objective"], rel=rtol["objective"])
    assert fit.objective < acceptance["besiroglu_point"]["published"]["objective_at_published"]
    assert fit.converged and not fit.at_boundary


def test_with_all_245_points_the_optimum_moves_as_computed_elsewhere(besiroglu, acceptance):
    fit, expected = point_fit(besiroglu(excluded=True)), acceptance["besiroglu_all245"]
    for name in ("E", "A", "alpha", "B", "beta"):
        assert getattr(fit.law, name) == pytest.approx(expected[name], rel=1e-3)
    assert fit.objective == pytest.approx(expected["objective"], rel=1e-6)


@pytest.mark.parametrize(("name", "rtol"), [("hot", 1e-3), ("cool_end", 1e-3), ("slim_chinchilla", 1e-2)])
def test_gemstones_published_optima_are_met(reference, runs_of, acceptance, name: str, rtol: float):
    rows = reference(f"gemstones_{name}.csv")
    columns = ("params_active_precise", "tokens", "final_loss")
    fit = point_fit(runs_of(*([float(row[key]) for row in rows] for key in columns)))
    law, expected = fit.law, acceptance["gemstones_delta1e-3"][name]
    found = [law.alpha, law.beta, np.log(law.A), np.log(law.B), np.log(law.E)]
    assert found == pytest.approx(expected[:5], rel=rtol)
    assert fit.objective == pytest.approx(expected[5], rel=1e-5)


def test_the_mean_instead_of_the_sum_stops_at_hoffmanns_values(besiroglu, acceptance):
    """Their bug: with the mean the gradient is below L-BFGS-B's default tolerance almost at once."""
    runs = besiroglu(excluded=False)
    x, y, log_loss = np.log(runs.N), np.log(runs.D), np.log(runs.loss_nats)

    def mean_huber(theta):
        a, b, e, alpha, beta = theta
        terms = np.stack([a - alpha * x, b - beta * y, np.full_like(x, e)])
        residual = np.logaddexp.reduce(terms) - log_loss
        clipped = np.clip(residual, -HUBER_DELTA, HUBER_DELTA)
        return (clipped * (residual - clipped / 2)).mean()

    law, expected = HOFFMANN.law, acceptance["hoffmann_bug"]
    start = [np.log(law.A), np.log(law.B), np.log(law.E), law.alpha, law.beta]
    found = minimize(mean_huber, start, method="L-BFGS-B")
    assert found.success and found.nit <= expected["stops_after_iterations"] + 1
    assert np.exp(found.x[2]) == pytest.approx(expected["returns"]["E"], abs=1e-3)
    problem = Problem.of(runs)
    stopped = Law(
        E=np.exp(found.x[2]), A=np.exp(found.x[0]), alpha=found.x[3], B=np.exp(found.x[1]), beta=found.x[4]
    )
    at_stop = problem.objective(problem.theta_of(stopped))[0]
    assert at_stop > 1.1 * acceptance["besiroglu_point"]["optimum"]["objective"]


def test_the_gradient_is_exact_with_and_without_weights(tiny_runs):
    problem = Problem.of(tiny_runs())
    theta = np.array([0.3, 0.2, -0.5, 0.31, 0.27])
    for weights in (1.0, np.arange(12.0)):
        numeric = approx_fprime(theta, lambda t, w=weights: problem.objective(t, w)[0], 1e-7)
        assert problem.objective(theta, weights)[1] == pytest.approx(numeric, rel=1e-4, abs=1e-7)


def test_a_law_is_recovered_from_its_own_noiseless_points(tiny_runs):
    law = Law(E=0.9, A=60.0, alpha=0.33, B=200.0, beta=0.33)
    fit = point_fit(tiny_runs(law, noise=0.0))
    for name in ("E", "alpha", "beta"):
        assert getattr(fit.law, name) == pytest.approx(getattr(law, name), rel=1e-3)
    assert fit.objective < 1e-9


def test_theta_and_law_are_inverse(tiny_runs):
    problem = Problem.of(tiny_runs())
    back = problem.law_of(problem.theta_of(HOFFMANN.law))
    assert dataclasses.astuple(back) == pytest.approx(dataclasses.astuple(HOFFMANN.law))
