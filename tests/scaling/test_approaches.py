import numpy as np
import pytest

from x1_pretrain.scaling.approaches import NO_CURVES, side_by_side
from x1_pretrain.scaling.envelope import Envelope
from x1_pretrain.scaling.fit import infer
from x1_pretrain.scaling.published import BESIROGLU

KEYS = ("a", "b", "N_opt", "D_opt")


@pytest.fixture
def many(runs_of, quick):
    """25 clean points over 5 budgets."""
    law = BESIROGLU.law
    C, factor = (g.ravel() for g in np.meshgrid(np.geomspace(1e16, 1e20, 5), [0.25, 0.5, 1, 2, 4]))
    N = law.n_opt(C) * factor
    return infer(runs_of(N, C / 6 / N, law.loss(N, C / 6 / N)), quick)


def test_on_clean_runs_all_methods_agree(many):
    C = np.geomspace(1e17, 1e19, 5)
    steps = Envelope(tuple(C), tuple(BESIROGLU.law.n_opt(C)), None)
    found = side_by_side(many, 1e9, steps)
    assert found["N_opt"]["mark"] == "trustworthy: its 95% interval lies among the sizes tried"
    for row in found["methods"]:
        assert row["reason"] is None
        assert row["a"] == pytest.approx(BESIROGLU.law.a, abs=0.03), row["method"]
        assert row["a"] + row["b"] == pytest.approx(1, abs=1e-3)
        assert row["N_opt"] == pytest.approx(BESIROGLU.law.n_opt(found["N_opt"]["C"]), rel=0.1)
        assert row["D_opt"] == pytest.approx(BESIROGLU.law.d_opt(1e9), rel=0.15)


def test_three_runs_have_one_trustworthy_size_and_reasons_for_the_rest(three_study):
    found = side_by_side(three_study, 1e9, None)
    assert found["D_opt"]["mark"].startswith("extrapolation over 1.0 decades of N and ")
    rows = {row["method"]: row for row in found["methods"]}
    assert rows["approach 1: training curves"]["reason"] == NO_CURVES
    parabolas = rows["approach 2: IsoFLOP parabolas"]
    assert parabolas["N_opt"] == pytest.approx(33.4e6, rel=0.01)
    assert parabolas["D_opt"] is None and "need two" in parabolas["reason"]
    assert "3 distinct points" in rows["curve_fit"]["reason"]
    assert "3 distinct points" in rows["approach 3: point fit"]["reason"]
    posterior = rows["approach 3: posterior"]
    assert posterior["reason"] is None
    for key in KEYS:
        low, high = posterior["ci95"][key]
        assert low < posterior[key] < high


def test_a_best_size_whose_interval_leaves_the_sizes_tried_is_uncertain(runs_of, quick):
    N = np.array([5e6, 25e6, 100e6])
    study = infer(runs_of(N, 1.35e17 / 6 / N, [4.2, 4.6, 4.3]), quick)  # opens downward: noise, not a bowl
    mark = side_by_side(study, 1e9, None)["N_opt"]["mark"]
    assert mark == "uncertain: its 95% interval reaches beyond the sizes tried"


def test_an_optimum_outside_the_sizes_tried_is_not_called_trustworthy(runs_of, quick):
    N = np.array([5e6, 25e6, 100e6])
    study = infer(runs_of(N, 1.35e17 / 6 / N, [4.6, 4.0, 3.5]), quick)
    found = side_by_side(study, 25e6, None)
    assert found["N_opt"]["mark"].startswith("extrapolation over")
    assert found["D_opt"]["mark"] == "interpolation: it lies among the sizes tried"
    assert "no budget has a parabola" in found["methods"][1]["reason"]
