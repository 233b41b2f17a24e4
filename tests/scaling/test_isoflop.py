import json

import numpy as np
import pytest

from x1_pretrain.scaling.isoflop import fit_parabola, fit_parabolas
from x1_pretrain.scaling.published import HOFFMANN_ROUNDED

N = np.array([5e6, 25e6, 100e6])
D = 1.35e17 / 6 / N
ALL = np.arange(3)


def test_the_labs_triple_has_its_optimum_at_33_million(three_runs):
    parabola = fit_parabola(three_runs, ALL)
    assert parabola.N_opt == pytest.approx(33.4e6, rel=0.01)
    assert parabola.refused is None
    optimum = parabola.as_json()["optimum"]
    assert optimum["D_per_N"] == pytest.approx(20.2, rel=0.02)
    assert 6 * optimum["N"] * optimum["D"] == pytest.approx(1.35e17)
    assert parabola.loss(N) == pytest.approx(three_runs.loss_nats)
    assert HOFFMANN_ROUNDED.law.n_opt(1.35e17) == pytest.approx(parabola.N_opt, rel=0.05)


@pytest.mark.parametrize(
    ("loss", "code", "says"),
    [
        ([4.2, 4.6, 4.3], "opens_downward", "no lowest point"),
        ([4.6, 4.4, 4.3], "outside_range", "add a larger model"),
        ([4.3, 4.4, 4.6], "outside_range", "add a smaller model"),
        ([4.4, 4.4, 4.4], "opens_downward", "no lowest point"),
    ],
)
def test_no_optimum_is_invented(runs_of, loss: list[float], code: str, says: str):
    parabola = fit_parabola(runs_of(N, D, loss), ALL)
    assert (parabola.N_opt, parabola.refused) == (None, code)
    assert says in parabola.reason
    assert parabola.as_json()["optimum"] is None


def test_two_sizes_are_too_few(runs_of):
    runs = runs_of([5e6, 5e6, 25e6], [4.5e9, 4.5e9, 0.9e9], [4.6, 4.61, 4.2])
    parabola = fit_parabola(runs, ALL)
    assert parabola.refused == "too_few_sizes" and parabola.loss(N) is None


def test_each_budget_of_the_sweep_has_its_parabola(tiny_runs):
    parabolas = fit_parabolas(tiny_runs(noise=0.0))
    assert [len(p.rows) for p in parabolas] == [3, 3, 3, 3]
    largest = parabolas[-1].C
    assert largest == pytest.approx(6e12, rel=0.01)


def test_nanochats_exponents_follow_from_its_optima(reference, reference_folder):
    expected = json.loads((reference_folder / "acceptance_tests.json").read_text())
    rows = reference("nanochat_isoflop_optima_2026-01-27.csv")
    for style, (a, b) in expected["nanochat_isoflop"]["a,b"].items():
        kept = [row for row in rows if row["style"].startswith(style)]
        C, size, tokens = (np.log([float(row[key]) for row in kept]) for key in ("flops_budget", "N", "D"))
        assert np.polyfit(C, size, 1)[0] == pytest.approx(a, abs=2e-3)
        assert np.polyfit(C, tokens, 1)[0] == pytest.approx(b, abs=2e-3)
