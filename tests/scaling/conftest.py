import csv
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from x1_pretrain.config import Fit
from x1_pretrain.scaling.fit import Study, infer
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.runs import Runs

REPOSITORY = Path(__file__).parents[2]
REFERENCE = Path(os.environ.get("X1_REFERENCE", REPOSITORY / "../shared/reference")) / "scaling"
TINY_LAW = Law(E=0.5, A=34.0, alpha=0.29, B=120.0, beta=0.30)
TINY_SIZES = (55_296, 230_400, 786_432)
BRANCHES = (0.125, 0.25, 0.5, 1.0)
QUICK = Fit(bootstrap=200, walkers=100, draws=2000, target_params=1e9)


def make_runs(N, D, loss, branch=None) -> Runs:
    N, D, loss = (np.array(values, dtype=float) for values in (N, D, loss))
    ids = tuple(f"run{i}" for i in range(len(N)))
    return Runs(ids, N, D, loss, branch, None, "0" * 64)


def make_tiny_runs(law: Law = TINY_LAW, noise: float = 0.005, seed: int = 0) -> Runs:
    """Twelve points as the tiny sweep gives them: three sizes, four branches, batches of 4096."""
    points = [(N, round(round(6e12 / 6 / N / 4096) * b) * 4096) for N in TINY_SIZES for b in BRANCHES]
    N, D = np.array(points, dtype=float).T
    loss = law.loss(N, D) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(N)))
    return make_runs(N, D, loss, np.array(BRANCHES * 3))


THREE_RUNS = make_runs([5e6, 25e6, 100e6], [4.5e9, 0.9e9, 0.225e9], [4.648, 4.208, 4.348])


@pytest.fixture
def runs_of() -> Callable[..., Runs]:
    return make_runs


@pytest.fixture
def tiny_runs() -> Callable[..., Runs]:
    return make_tiny_runs


@pytest.fixture
def three_runs() -> Runs:
    return THREE_RUNS


@pytest.fixture
def quick() -> Fit:
    return QUICK


@pytest.fixture(scope="session")
def tiny_study() -> Study:
    return infer(make_tiny_runs(), QUICK)


@pytest.fixture(scope="session")
def three_study() -> Study:
    return infer(THREE_RUNS, QUICK)


@pytest.fixture
def reference() -> Callable[..., list[dict[str, str]]]:
    """Rows of a CSV of other people's runs; the test is skipped where they are absent."""

    def rows(name: str) -> list[dict[str, str]]:
        path = REFERENCE / name
        if not path.is_file():
            pytest.skip(f"reference data {name} is not here")
        with path.open(newline="") as stream:
            return list(csv.DictReader(stream))

    return rows


@pytest.fixture
def reference_folder() -> Path:
    if not REFERENCE.is_dir():
        pytest.skip("reference data is not here")
    return REFERENCE
