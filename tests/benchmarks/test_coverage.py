"""coverage.py: the quick version, and that a wrong interval would be seen."""

import json

import coverage
import numpy as np
import pytest

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.posterior import Posterior, Sampling


def test_the_quick_table_has_every_cell_and_no_cell_fails_badly(capsys: pytest.CaptureFixture[str]):
    coverage.main(["--quick"])
    result = json.loads(capsys.readouterr().out)
    assert len(result["cells"]) == 5 * 4
    for found in result["cells"]:
        assert set(found["coverage"]) == set(coverage.QUANTITIES)
        assert min(found["coverage"].values()) >= 0.5, found
    every = [value for found in result["cells"] for value in found["coverage"].values()]
    assert 0.92 <= np.mean(every) <= 0.99
    ends = {(c["truth"], c["design"]): c["D_opt_1B_end_to_end"] for c in result["cells"]}
    assert ends["besiroglu", "25 over 5"] < ends["besiroglu", "12 branches"] < ends["besiroglu", "3"]


@pytest.mark.parametrize("name", coverage.DESIGNS)
def test_a_design_keeps_to_its_budgets(name: str):
    for place in (coverage.LAB, coverage.TINY):
        N, C = coverage.DESIGNS[name](place)
        assert len(N) == len(C) == int(name.split()[0])
        assert place.C in C and N.min() >= place.sizes[0] * 0.3
    runs = coverage.simulated(coverage.DESIGNS[name], place, coverage.TRUTHS["gadre"][0], 0.0, np.random)
    assert np.allclose(runs.C, C)


def test_a_misplaced_interval_contains_nothing():
    truth = coverage.TRUTHS["gadre"][0]
    rng = np.random.default_rng(0)
    spread = np.exp(1e-3 * rng.standard_normal((2, 500)))
    moved = Law(*(1.5 * getattr(truth, k) * spread for k in ("E", "A", "alpha", "B", "beta")))
    posterior = Posterior(
        moved, 1e-3 * spread, 0.5, np.zeros(6), moved, spread, Sampling(walkers=100, steps=100)
    )
    assert not any(coverage.contained(posterior, truth, 0.0, 1.35e17, rng))
