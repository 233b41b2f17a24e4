import json

import numpy as np
import pytest

from x1_pretrain.scaling.fit import infer
from x1_pretrain.scaling.fit_json import fit_json
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.published import BESIROGLU

KEYS = ("E", "A", "alpha", "B", "beta")


def test_the_five_keys_have_the_labs_shape(tiny_study, quick):
    content = fit_json(tiny_study, quick)
    assert tuple(content)[:5] == KEYS
    for name in KEYS:
        assert set(content[name]) == {"point", "ci95"}
        low, high = content[name]["ci95"]
        assert low <= content[name]["point"] <= high


def test_three_rows_get_medians_and_prior_driven_intervals(three_study, quick):
    content = fit_json(three_study, quick)
    assert content["identified"] is False and content["point_is"] == "posterior median"
    assert "3 distinct points over 1 budget" in content["point_fit"]["refused"]
    assert "3 distinct points over 1 budget" in content["bootstrap"]["refused"]
    for name in KEYS:
        low, high = content[name]["ci95"]
        assert high / low > 1.5  # never the zero width of a resampled interpolation
        assert content[name]["point"] == content["posterior"]["parameters"][name]["median"]
    for name in ("alpha", "beta"):
        assert content["posterior"]["parameters"][name]["contraction"] > 0.4
    assert content["isoflop"][0]["optimum"]["N"] == pytest.approx(33.4e6, rel=0.01)
    low, high = content["n_opt"]["ci95"]
    assert low < content["isoflop"][0]["optimum"]["N"] < high < 1.8 * low


def test_twelve_runs_get_everything_beside(tiny_study, quick):
    content = fit_json(tiny_study, quick)
    assert content["point_fit"]["converged"]
    assert content["bootstrap"]["resamples"] == quick.bootstrap
    assert content["jacobian"]["rank"] == 5
    assert content["prior"]["coordinates"]["ln_alpha"]["sd"] == 0.35
    rho = content["posterior"]["parameters"]["rho"]
    assert rho["prior_ci95"] == pytest.approx([0.05, 0.95], abs=0.005) and rho["ci95"][1] < 1
    for name, summary in content["posterior"]["parameters"].items():
        low, high = summary["ci95"]
        assert 0 < low < summary["median"] < high
        assert max(summary["mc_error"]) < 0.2 * (high - low), name


def test_where_the_runs_decide_the_point_is_the_point_fit(runs_of, quick):
    C, factor = (g.ravel() for g in np.meshgrid(np.geomspace(1e16, 1e20, 5), [0.2, 0.5, 1, 2, 5]))
    N = BESIROGLU.law.n_opt(C) * factor
    noise = np.exp(0.002 * np.random.default_rng(2).standard_normal(25))
    runs = runs_of(N, C / 6 / N, BESIROGLU.law.loss(N, C / 6 / N) * noise)
    content = fit_json(infer(runs, quick), quick)
    assert content["identified"] and content["warnings"] == []
    assert content["point_is"] == "point fit"
    assert content["alpha"]["point"] == content["point_fit"]["alpha"]


def test_the_same_runs_give_the_same_bytes(tiny_runs, quick):
    texts = {json.dumps(fit_json(infer(tiny_runs(), quick), quick), allow_nan=False) for _ in range(2)}
    assert len(texts) == 1


def test_a_best_size_outside_those_tried_is_called_an_extrapolation(three_study, tiny_runs, quick):
    assert fit_json(three_study, quick)["n_opt"]["kind"] == "interpolation"
    small_is_best = Law(E=0.7, A=1.0, alpha=0.27, B=400.0, beta=0.35)
    content = fit_json(infer(tiny_runs(small_is_best), quick), quick)
    assert content["n_opt"]["kind"] == "extrapolation"
    assert content["isoflop"][-1]["refused"] == "outside_range"
