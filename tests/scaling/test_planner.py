import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.scaling import planner
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.published import BESIROGLU, HOFFMANN


def sizes(plan: planner.Plan) -> list[float]:
    return [plan.N, plan.D]


def percent(found: planner.Plan, plain: planner.Plan) -> list[float]:
    return [100 * found.N / plain.N, 100 * found.D / plain.D]


SARDANA = Law(E=1.69, A=406.4, alpha=0.336, B=410.7, beta=0.283)  # the digits of their code


@pytest.fixture
def expected(reference_folder):
    return json.loads((reference_folder / "acceptance_tests.json").read_text())["sardana_inference"]


@pytest.mark.parametrize("law", [HOFFMANN.law, BESIROGLU.law, SARDANA])
@pytest.mark.parametrize("C", [1e17, 1e20, 1e24])
def test_the_plan_for_a_budget_is_the_plan_for_its_loss(law: Law, C: float):
    best = planner.compute_optimal(law, C)
    assert best.flops == pytest.approx(C)
    back = planner.to_reach(law, best.loss_nats)
    assert sizes(back) == pytest.approx(sizes(best), rel=1e-6)
    assert planner.excess(law, best) == pytest.approx(0, abs=1e-6)


@given(served=st.floats(0, 1e14), loss=st.floats(1.75, 3.5), factor=st.floats(0.3, 3))
def test_no_other_size_of_the_same_loss_costs_less_over_its_life(served: float, loss: float, factor: float):
    plan = planner.to_reach(SARDANA, loss, served)
    assert SARDANA.loss(plan.N, plan.D) == pytest.approx(loss, rel=1e-9)
    N = plan.N * factor
    left = loss - SARDANA.E - SARDANA.A * N**-SARDANA.alpha
    if left > 0:
        other = planner.Plan(N, (SARDANA.B / left) ** (1 / SARDANA.beta), loss)
        cheapest = planner.lifetime_flops(plan, served)
        assert planner.lifetime_flops(other, served) >= cheapest * (1 - 1e-9)


def test_sardanas_calculator(expected):
    assert SARDANA.loss(70e9, 1e12) == pytest.approx(expected["L(70e9,1e12)"], abs=5e-4)
    found, wanted = planner.to_reach(SARDANA, 1.947, 2e12), expected["target_1.947_T_2e12"]
    plain = planner.to_reach(SARDANA, 1.947)
    assert sizes(found) == pytest.approx([wanted["N"], wanted["D"]], rel=5e-4)
    assert percent(found, plain) == pytest.approx([wanted["N_pct"], wanted["D_pct"]], abs=0.01)
    cost = planner.lifetime_flops(found, 2e12) / planner.lifetime_flops(plain, 2e12)
    assert 100 * cost == pytest.approx(wanted["cost_pct"], abs=0.01)


def test_sardanas_13b_model_that_serves_two_trillion_tokens(expected):
    wanted = expected["13B_T_2e12"]
    D = SARDANA.d_opt(13e9)
    plain = planner.Plan(13e9, D, float(SARDANA.loss(13e9, D)))
    found = planner.to_reach(SARDANA, plain.loss_nats, 2e12)
    assert sizes(found) == pytest.approx([wanted["N"], wanted["D"]], rel=1e-3)
    before = planner.lifetime_flops(plain, 2e12)
    saved = before - planner.lifetime_flops(found, 2e12)
    assert saved == pytest.approx(wanted["saving_flops"], rel=5e-3)
    assert saved / before == pytest.approx(wanted["saving"], abs=5e-4)


def test_sardanas_dollars(expected):
    """Trained on A100 at 1.40 $/h, 50% MFU; served in int8 at 0.60 $/h, 40% for prompts, 20% for answers."""
    prices = planner.Prices(
        training=planner.usd_per_flop(1.40, 312e12, 0.5),
        prompt=planner.usd_per_flop(0.60, 624e12, 0.4),
        generated=planner.usd_per_flop(0.60, 624e12, 0.2),
    )
    tokens, wanted = prices.effective_tokens(1e13, 2.5e12), expected["dollar_example"]
    found, plain = planner.to_reach(SARDANA, 1.947, tokens), planner.to_reach(SARDANA, 1.947)
    assert sizes(found) == pytest.approx([wanted["N"], wanted["D"]], rel=5e-4)
    assert percent(found, plain) == pytest.approx([wanted["N_pct"], wanted["D_pct"]], abs=0.01)
    cost = planner.lifetime_flops(found, tokens) / planner.lifetime_flops(plain, tokens)
    assert 100 * cost == pytest.approx(wanted["cost_pct"], abs=0.01)


def test_sardanas_30b_model(expected):
    wanted = expected["30B_chinchilla"]
    D = SARDANA.d_opt(30e9)
    plan = planner.Plan(30e9, D, float(SARDANA.loss(30e9, D)))
    assert sizes(plan) == pytest.approx([30e9, wanted["D"]], rel=5e-4)
    assert plan.loss_nats == pytest.approx(wanted["loss"], rel=1e-12)
    assert plan.flops == pytest.approx(wanted["train_flops"], rel=5e-4)
    total = planner.lifetime_flops(plan, 1e9 * 600)
    assert total == pytest.approx(wanted["total_flops_1e9req_600tok"], rel=5e-4)


def test_a_model_off_the_optimum_wastes_compute():
    best = planner.compute_optimal(BESIROGLU.law, 1e20)
    wasted = [planner.excess(BESIROGLU.law, planner.of_size(BESIROGLU.law, f * best.N, 1e20)) for f in (2, 4)]
    assert 0.05 < wasted[0] < 0.3 and wasted[1] > 2 * wasted[0]


def test_a_loss_below_the_irreducible_one_is_refused():
    with pytest.raises(UserError, match=r"1\.6 is not reached by any run: .* 1\.69"):
        planner.to_reach(SARDANA, 1.6)


def test_serving_more_asks_for_a_smaller_model_on_more_tokens():
    plans = [planner.to_reach(SARDANA, 2.0, served) for served in (0, 1e11, 1e12, 1e13)]
    assert np.all(np.diff([plan.N for plan in plans]) < 0)
    assert np.all(np.diff([plan.D for plan in plans]) > 0)
