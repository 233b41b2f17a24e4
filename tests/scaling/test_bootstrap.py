import json

import numpy as np
import pytest

from x1_pretrain.scaling.bootstrap import minimise_all, pairs_bootstrap, quantiles, refusal
from x1_pretrain.scaling.point_fit import Problem, point_fit


def test_it_is_refused_below_nine_runs_over_three_budgets(three_runs, tiny_runs, runs_of):
    assert "3 distinct points over 1 budget" in refusal(three_runs, 1000)
    one_budget = runs_of(np.geomspace(1e6, 1e8, 9), 1e16 / np.geomspace(1e6, 1e8, 9), [4.0] * 9)
    assert "9 distinct points over 1 budget" in refusal(one_budget, 1000)
    assert refusal(tiny_runs(), 1000) is None
    assert "not asked for" in refusal(tiny_runs(), 0)


def test_it_is_deterministic_and_its_intervals_surround_the_fit(tiny_runs):
    runs = tiny_runs()
    law = point_fit(runs).law
    first, again = (pairs_bootstrap(runs, law, 300, seed=0) for _ in range(2))
    assert np.array_equal(first.law.A, again.law.A)
    assert first.resampling == "pairs within each budget"
    assert first.used >= 280 and first.used + first.unconverged <= 300
    ends = quantiles(first)
    assert ends["alpha"][0] <= law.alpha <= ends["alpha"][1]
    assert ends["beta"][0] <= law.beta <= ends["beta"][1]


def test_all_at_once_finds_the_optima_that_one_by_one_does(tiny_runs):
    runs = tiny_runs()
    problem = Problem.of(runs)
    start = problem.theta_of(point_fit(runs).law)
    rng = np.random.default_rng(0)
    weights = np.array([np.bincount(rng.integers(12, size=12), minlength=12) for _ in range(12)])
    weights = weights[(weights > 0).sum(axis=1) >= 7]
    theta, converged = minimise_all(problem, start, weights)
    assert converged.mean() > 0.8
    for row, found in zip(weights[converged], theta[converged], strict=True):
        alone = problem.objective(problem.minimise(start, row), row)[0]
        assert problem.objective(found, row)[0] <= alone * (1 + 1e-3) + 1e-12


def test_besiroglus_4000_resamples_have_their_published_standard_errors(reference, reference_folder, runs_of):
    expected = json.loads((reference_folder / "acceptance_tests.json").read_text())
    kept = [r for r in reference("besiroglu_245.csv") if r["excluded_top5"] == "False"]
    runs = runs_of(*([float(row[key]) for row in kept] for key in ("N", "D", "loss")))
    problem = Problem.of(runs)
    stream = np.random.RandomState(42)  # theirs
    weights = np.array(
        [np.bincount(stream.choice(240, 240, replace=True), minlength=240) for _ in range(4000)]
    ).astype(float)
    theta, converged = minimise_all(problem, problem.theta_of(point_fit(runs).law), weights)
    assert converged.all()
    values = {
        "E": np.exp(theta[:, 2]),
        "A": np.exp(theta[:, 0] + theta[:, 3] * problem.center_x),
        "B": np.exp(theta[:, 1] + theta[:, 4] * problem.center_y),
        "alpha": theta[:, 3],
        "beta": theta[:, 4],
    }
    for name, sd in expected["besiroglu_bootstrap"]["sd_ddof1"].items():
        assert values[name].std(ddof=1) == pytest.approx(sd, rel=1e-3)
        ends = expected["besiroglu_bootstrap"]["ci95"][name]
        assert np.quantile(values[name], (0.025, 0.975)) == pytest.approx(ends, rel=5e-3)
