import numpy as np

from x1_pretrain.config import Fit
from x1_pretrain.scaling.fit import infer
from x1_pretrain.scaling.identify import jacobian
from x1_pretrain.scaling.intervals import interval
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.published import BESIROGLU


def test_three_points_have_rank_three(three_runs):
    matrix = jacobian(three_runs, BESIROGLU.law)
    assert matrix.rank == 3 and matrix.condition is None


def test_more_budgets_condition_the_problem_better(runs_of):
    def condition(budgets, sizes):
        C, N = (grid.ravel() for grid in np.meshgrid(budgets, sizes))
        runs = runs_of(N, C / 6 / N, np.full(len(N), 3.0))
        return jacobian(runs, BESIROGLU.law).condition

    one = condition([1.35e17], np.geomspace(5e6, 1e8, 25))
    five = condition(np.geomspace(1.35e16, 1.35e18, 5), np.geomspace(5e6, 1e8, 5))
    assert 2e4 < one < 2e5 and 500 < five < 2000


def test_three_points_are_not_identified_and_the_reasons_are_numbers(three_study):
    assert not three_study.identified
    assert any("3 distinct points" in reason for reason in three_study.doubts)
    assert any("1 FLOPs budget;" in reason for reason in three_study.doubts)


def test_many_points_over_five_budgets_are_identified(runs_of):
    C, factor = (g.ravel() for g in np.meshgrid(np.geomspace(1e16, 1e20, 5), [0.2, 0.5, 1, 2, 5]))
    law = BESIROGLU.law
    N = law.n_opt(C) * factor
    noise = np.exp(0.003 * np.random.default_rng(1).standard_normal(25))
    runs = runs_of(N, C / 6 / N, law.loss(N, C / 6 / N) * noise)
    study = infer(runs, Fit(bootstrap=0, walkers=100, draws=1500, target_params=1e9))
    assert study.identified, study.doubts


def test_runs_that_contradict_the_prior_are_not_identified(tiny_runs, quick):
    odd = Law(E=0.5, A=34.0, alpha=0.29, B=4.0, beta=0.05)  # no published beta is below 0.15
    doubts = infer(tiny_runs(odd), quick).doubts
    assert any("disagree with the prior: ln_beta lies -" in reason for reason in doubts)


def test_a_text_of_which_most_of_the_loss_is_irreducible_is_no_contradiction(tiny_runs, quick):
    templated = Law(E=1.4, A=14.1, alpha=0.27, B=107.0, beta=0.33)  # E is 85% of the loss at 25M, 1B
    study = infer(tiny_runs(templated), quick)
    assert not any("disagree" in reason for reason in study.doubts)
    low, high = interval(study.posterior.law.E)["ci95"]
    assert low < 1.4 < high
