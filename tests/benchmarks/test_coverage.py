"""coverage.py: the quick version, and that a wrong interval would be seen."""

import json

import coverage
import numpy as np
import pytest

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.posterior import Posterior, Sampling


@pytest.mark.slow
def test_the_quick_table_has_every_cell_and_no_cell_fails_badly(capsys: pytest.CaptureFixture[str]):
    coverage.main(["--quick"])
    result = json.loads(capsys.readouterr().out)
    assert len(result["cells"]) == 5 * 4 + 2 * 2
    for found in result["cells"]:
        assert set(found["coverage"]) == set(coverage.QUANTITIES)
        assert min(found["coverage"].values()) >= 0.5, found
    every = [value for found in result["cells"] for value in found["coverage"].values()]
    assert 0.92 <= np.mean(every) <= 0.99
    ends = {
        (c["truth"], c["design"]): c["D_opt_1B_end_to_end"]
        for c in result["cells"]
        if c["errors"] == "independent"
    }
    assert ends["besiroglu", "25 over 5"] < ends["besiroglu", "12 branches"] < ends["besiroglu", "3"]


@pytest.mark.parametrize("name", coverage.DESIGNS)
def test_a_design_keeps_to_its_budgets(name: str):
    for place in (coverage.LAB, coverage.TINY):
        N, C = coverage.DESIGNS[name](place)
        assert len(N) == len(C) == int(name.split()[0])
        assert place.C in C and N.min() >= place.sizes[0] * 0.3
    rng, law = np.random.default_rng(0), coverage.TRUTHS["gadre"][0]
    runs = coverage.simulated(coverage.DESIGNS[name], place, law, 0.0, 0.0, rng)
    assert np.allclose(runs.C, C)


def test_shared_errors_are_of_the_size_and_have_the_variance_of_independent_ones():
    law, rng = coverage.TRUTHS["hoffmann"][0], np.random.default_rng(0)

    def errors(rho: float) -> np.ndarray:
        made = [
            coverage.simulated(coverage.five_with_branches, coverage.LAB, law, 0.01, rho, rng)
            for _ in range(400)
        ]
        found = np.stack([np.log(runs.loss_nats / law.loss(runs.N, runs.D)) for runs in made])
        return found.reshape(-1, 5, 5)  # repeat, size, branch

    for rho in (0.0, 0.7, 1.0):
        found = errors(rho)
        assert found.std() == pytest.approx(0.01, rel=0.05)
        assert found.mean(axis=2).var() / 1e-4 == pytest.approx(rho + (1 - rho) / 5, abs=0.06)


def test_a_misplaced_interval_contains_nothing():
    truth = coverage.TRUTHS["gadre"][0]
    rng = np.random.default_rng(0)
    spread = np.exp(1e-3 * rng.standard_normal((2, 500)))
    moved = Law(*(1.5 * getattr(truth, k) * spread for k in ("E", "A", "alpha", "B", "beta")))
    posterior = Posterior(
        law=moved,
        sigma=1e-3 * spread,
        rho=spread / 2,
        acceptance=0.5,
        shift=np.zeros(7),
        prior_law=moved,
        prior_sigma=spread,
        prior_rho=spread / 2,
        sampling=Sampling(walkers=100, steps=100),
    )
    assert not any(coverage.contained(posterior, truth, 0.0, 1.35e17, rng))
