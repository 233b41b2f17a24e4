import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.published import BESIROGLU, HOFFMANN, HOFFMANN_ROUNDED

BESIROGLU_OPTIMUM = Law(E=1.817218, A=477.826, alpha=0.347310, B=2143.417, beta=0.367172)

laws = st.builds(
    Law,
    E=st.floats(0.1, 3),
    A=st.floats(5, 5000),
    alpha=st.floats(0.1, 0.8),
    B=st.floats(5, 5000),
    beta=st.floats(0.1, 0.8),
)


@given(law=laws, log_C=st.floats(12, 26))
def test_the_best_size_of_a_budget_has_the_lowest_loss(law: Law, log_C: float):
    C = 10**log_C
    N = float(law.n_opt(C))
    best = law.loss(N, C / (6 * N))
    for factor in (0.5, 0.99, 1.01, 2.0):
        assert law.loss(factor * N, C / (6 * factor * N)) >= best * (1 - 1e-12)


@given(law=laws, log_C=st.floats(12, 26))
def test_n_opt_and_d_opt_share_the_budget_and_agree_with_each_other(law: Law, log_C: float):
    C = 10**log_C
    N, D = float(law.n_opt(C)), float(law.d_opt_at(C))
    assert math.isclose(6 * N * D, C, rel_tol=1e-9)
    assert math.isclose(float(law.d_opt(N)), D, rel_tol=1e-6)
    assert math.isclose(law.a + law.b, 1.0)
    assert math.isclose(law.n_opt(10 * C) / N, 10**law.a, rel_tol=1e-9)


@given(law=laws, log_N=st.floats(4, 12), log_D=st.floats(5, 14))
def test_the_loss_is_the_formula(law: Law, log_N: float, log_D: float):
    N, D = 10**log_N, 10**log_D
    assert math.isclose(law.loss(N, D), law.E + law.A / N**law.alpha + law.B / D**law.beta)


@pytest.mark.parametrize(
    ("law", "tokens"),
    [
        (HOFFMANN_ROUNDED.law, 4.40302e10),
        (HOFFMANN.law, 2.9134e10),
        (BESIROGLU_OPTIMUM, 2.26077e10),
        (Law(E=2.1, A=380, alpha=0.32, B=290, beta=0.26), 1.89936e10),
    ],
)
def test_tokens_for_1b_are_the_independently_computed_ones(law: Law, tokens: float):
    assert law.d_opt(1e9) == pytest.approx(tokens, rel=1e-4)


def test_tokens_per_parameter_of_besiroglu_fall_with_compute():
    expected = {1e18: 25.91, 1e20: 22.8, 1e22: 20.06, 5.88e23: 17.91, 1e24: 17.65, 3.8e25: 15.95}
    for C, D_per_N in expected.items():
        N = BESIROGLU_OPTIMUM.n_opt(C)
        assert BESIROGLU_OPTIMUM.d_opt_at(C) / N == pytest.approx(D_per_N, abs=0.01)


def test_an_ensemble_of_laws_is_each_of_them():
    both = [HOFFMANN.law, BESIROGLU.law]
    stack = {f: np.array([getattr(law, f) for law in both]) for f in ("E", "A", "alpha", "B", "beta")}
    for i, law in enumerate(both):
        assert Law(**stack).d_opt(1e9)[i] == pytest.approx(law.d_opt(1e9))
        assert Law(**stack).loss(1e9, 2e10)[i] == pytest.approx(law.loss(1e9, 2e10))
