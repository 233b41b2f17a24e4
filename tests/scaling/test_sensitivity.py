import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.published import HOFFMANN
from x1_pretrain.scaling.sensitivity import KEPT, SIX_ND, Cost, sensitivity

LARGEST = np.array([3, 7, 11])


exponents = st.floats(0.15, 0.7)


@given(power=st.floats(0.3, 1.5), log_C=st.floats(14, 24), alpha=exponents, beta=exponents)
def test_the_best_size_under_another_cost_has_the_lowest_loss(power, log_C, alpha, beta):
    law, cost, C = Law(E=1.5, A=100.0, alpha=alpha, B=300.0, beta=beta), Cost(7.0, power), 10**log_C

    def loss(log_N: float) -> float:
        N = np.exp(log_N)
        return float(law.loss(N, C / (cost.scale * N**cost.power)))

    found = minimize_scalar(loss, bracket=(5.0, 25.0), tol=1e-10)
    N = cost.n_opt(law, C)
    assert loss(np.log(N)) <= found.fun * (1 + 1e-9)
    D = C / (cost.scale * N**cost.power)
    assert cost.d_opt(law, N) == pytest.approx(D, rel=1e-6)


def test_6ND_is_the_laws_own_optimum():
    assert SIX_ND.n_opt(HOFFMANN.law, 1e20) == pytest.approx(HOFFMANN.law.n_opt(1e20))
    assert SIX_ND.d_opt(HOFFMANN.law, 1e9) == pytest.approx(HOFFMANN.law.d_opt(1e9))


def test_a_cost_is_recovered_from_counted_flops():
    N, D = np.array([1e5, 1e6, 1e7]), np.array([1e7, 1e8, 1e8])
    assert Cost.fitted(N, D, 11 * N**0.8 * D) == Cost(pytest.approx(11), pytest.approx(0.8))


def test_sixteen_rows_for_runs_that_allow_every_choice(tiny_runs):
    runs = tiny_runs()
    full = dataclasses.replace(runs, N_total=2.5 * runs.N**0.95, C_counted=30 * runs.N**0.9 * runs.D)
    found = sensitivity(full, LARGEST, 1e9)
    assert found["left_out"] == [] and len(found["rows"]) == 16
    keys = ("objective", "N_is", "flops", "rows")
    assert len({tuple(row[key] for key in keys) for row in found["rows"]}) == 16
    kept = {row["rows"]: row["runs"] for row in found["rows"]}
    assert kept == {"all": 12, KEPT: int((runs.D / runs.N >= 0.5).sum())} and kept[KEPT] < 12
    by = {tuple(row[key] for key in keys): row for row in found["rows"]}
    plain = by["huber", "N", "6ND", "all"]
    assert by["huber", "N", "counted", "all"]["alpha"] == plain["alpha"]  # the same law, another budget
    assert by["huber", "N", "counted", "all"]["N_opt"] != plain["N_opt"]
    assert by["huber", "N_total", "6ND", "all"]["alpha"] == pytest.approx(plain["alpha"] / 0.95, rel=1e-3)
    assert plain["D_per_N"] == pytest.approx(plain["D_opt"] / 1e9)


def test_what_the_runs_do_not_allow_is_said(tiny_runs, three_runs):
    found = sensitivity(tiny_runs(), LARGEST, 1e9)
    assert len(found["rows"]) == 4
    assert [text.split(":")[0] for text in found["left_out"]] == ["N_total", "counted FLOPs"]
    assert "3 distinct points" in sensitivity(three_runs, np.arange(3), 1e9)["refused"]
