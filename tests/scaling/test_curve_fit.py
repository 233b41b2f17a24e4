import warnings

import numpy as np
import pytest
from scipy import optimize

from x1_pretrain.scaling.curve_fit import curve_fit, refusal
from x1_pretrain.scaling.published import HOFFMANN_ROUNDED


def form(x, E, A, alpha, B, beta):
    return E + A * x[0] ** -alpha + B * x[1] ** -beta


def test_it_is_refused_up_to_five_points_with_the_reason(three_runs, runs_of):
    assert "3 distinct points for five parameters" in refusal(three_runs)
    five = runs_of(np.geomspace(1e6, 1e8, 5), np.full(5, 1e9), [4.0, 3.8, 3.6, 3.5, 3.4])
    assert "5 distinct points" in curve_fit(five)
    again = runs_of(np.tile(five.N, 3), np.tile(five.D, 3), np.tile(five.loss_nats, 3))
    assert "5 distinct points" in curve_fit(again)  # seeds are no new points


def test_what_it_is_spared_from(three_runs):
    """scipy with three points: an error, or an interpolation that leaves A and B where they were."""
    start = HOFFMANN_ROUNDED.law
    p0 = [start.E, start.A, start.alpha, start.B, start.beta]
    x = np.stack([three_runs.N, three_runs.D])
    with pytest.raises(TypeError, match="must not exceed the number of data points=3"):
        optimize.curve_fit(form, x, three_runs.loss_nats, p0=p0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optimize.OptimizeWarning)
        found, covariance = optimize.curve_fit(form, x, three_runs.loss_nats, p0=p0, method="trf")
    assert np.isinf(covariance).all()
    assert found[[1, 3]] == pytest.approx([start.A, start.B], rel=1e-4)
    assert form(x, *found) == pytest.approx(three_runs.loss_nats, abs=1e-6)


def test_it_finds_the_law_of_many_clean_points(runs_of):
    law = HOFFMANN_ROUNDED.law
    N, D = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e7, 1e9, 5), np.geomspace(1e9, 1e11, 5)))
    found = curve_fit(runs_of(N, D, law.loss(N, D)))
    for name in ("E", "A", "alpha", "B", "beta"):
        assert getattr(found, name) == pytest.approx(getattr(law, name), rel=1e-3)
