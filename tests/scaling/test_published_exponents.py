"""Other people's IsoFLOP optima give the exponents they published, through our weights and definitions."""

import json

import numpy as np
import pytest

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.point_fit import point_fit

PORIAN = (  # in the order of their paper: each mends one thing of Kaplan's set-up
    "rw/base/warmup=long/decay=kaplan/params=kaplan/train",
    "rw/base/warmup=long/decay=kaplan/params=standard/val",
    "rw/base/warmup=short/decay=kaplan/params=standard/val",
    "rw/base/warmup=short/decay=chinchilla/params=standard/val",
    "rw/tuned/warmup=short/decay=const/params=standard/val",
)


@pytest.fixture
def acceptance(reference_folder):
    return json.loads((reference_folder / "acceptance_tests.json").read_text())


@pytest.mark.parametrize("i", range(5))
def test_porians_exponents_fall_from_kaplans_to_chinchillas(reference, acceptance, i: int):
    rows = [r for r in reference("porian_optimal_pairs_summary_df.csv") if r["config"] == PORIAN[i]]
    rows = [row for row in rows if row["n_star_std"]]  # no optimum among the sizes, no spread
    C, N, spread = (np.array([float(row[key]) for row in rows]) for key in ("flops", "n", "n_star_std"))
    a = np.polyfit(np.log(C), np.log(N), 1, w=1 / spread)[0]
    assert a == pytest.approx(acceptance["porian_power_laws"]["a_refinedweb"][i], abs=1e-4)


def test_tokens_per_parameter_by_compute(acceptance):
    optimum = acceptance["besiroglu_point"]["optimum"]
    law = Law(**{name: optimum[name] for name in ("E", "A", "alpha", "B", "beta")})
    expected = acceptance["allocation_identities"]["besiroglu_optimum_DN"]
    for C, D_per_N in expected.items():
        assert law.d_opt_at(float(C)) / law.n_opt(float(C)) == pytest.approx(D_per_N, abs=0.01)


@pytest.mark.parametrize("subset", ["all", "T/P<=100"])
def test_sardanas_runs_refit_as_computed_elsewhere(reference, runs_of, acceptance, subset: str):
    rows = reference("sardana_47.csv")
    if subset != "all":
        rows = [row for row in rows if float(row["Tokens/Params"]) <= 100]
    columns = ("Parameters", "Tokens", "Smoothed Loss")
    law = point_fit(runs_of(*([float(row[key]) for row in rows] for key in columns))).law
    for name, value in acceptance["sardana_fit"][subset].items():
        assert getattr(law, name) == pytest.approx(value, rel=2e-3)


def test_chinchillas_own_table_is_on_20_tokens_per_parameter(reference):
    """Approach 3 of its table follows from none of its printed coefficients; approaches 1 and 2 agree."""
    (row,) = [r for r in reference("chinchilla_table3_A3.csv") if float(r["N"]) == 1e9]
    for approach in ("A1", "A2"):
        tokens, flops = float(row[f"{approach}_D"]), float(row[f"{approach}_C"])
        assert tokens == pytest.approx(20e9, rel=0.02)
        assert flops == pytest.approx(6 * 1e9 * tokens, rel=0.01)
