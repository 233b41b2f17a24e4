"""Each number of docs/errata.md."""

from pathlib import Path

import pytest

from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.published import HOFFMANN_ROUNDED, PUBLISHED
from x1_pretrain.shape import ModelShape

ERRATA = (Path(__file__).parents[2] / "docs/errata.md").read_text()
ILLUSTRATIVE = Law(E=2.1, A=380.0, alpha=0.32, B=290.0, beta=0.26)
TRIPLE = {"A": (5e6, 4.5e9), "B": (25e6, 0.9e9), "C": (100e6, 0.225e9)}


def shape(n_layer: int, d_model: int, n_head: int, n_kv_head: int | None = None) -> ModelShape:
    return ModelShape(n_layer, d_model, n_head, n_kv_head or n_head, flops=1.0)


def test_1_d_opt_has_no_factor_1e9():
    tokens = ILLUSTRATIVE.d_opt(1e9)
    assert tokens == pytest.approx(1.90e10, rel=1e-3)
    C = 6 * 1e9 * tokens
    losses = {f: ILLUSTRATIVE.loss(1e9 * f, tokens / f) for f in (0.98, 1.0, 1.02)}
    assert min(losses, key=losses.get) == 1.0
    assert ILLUSTRATIVE.n_opt(C) == pytest.approx(1e9)
    wrong = tokens * 1e9
    assert ILLUSTRATIVE.n_opt(6 * 1e9 * wrong) > 100 * 1e9


def test_2_twenty_tokens_per_parameter_not_parameters_per_token():
    for published in PUBLISHED:
        assert 15 < published.law.d_opt(1e9) / 1e9 < 50
    assert "D = 20 N" in ERRATA


def test_3_the_predicted_losses():
    losses = {run: HOFFMANN_ROUNDED.law.loss(N, D) for run, (N, D) in TRIPLE.items()}
    assert losses == pytest.approx({"A": 4.648, "B": 4.208, "C": 4.348}, abs=5e-4)
    assert HOFFMANN_ROUNDED.law.n_opt(1.35e17) == pytest.approx(33e6, rel=0.05)


def test_4_six_layers_of_512_are_19_million():
    assert shape(6, 512, 8).N == 18_874_368
    assert shape(8, 512, 8).N == 25_165_824


def test_5_thirty_two_layers_of_768_are_201_million():
    deep, shallow = shape(32, 768, 12, 4).N, shape(8, 768, 12, 4).N
    assert deep == pytest.approx(201e6, rel=2e-3)
    assert shallow == pytest.approx(50.3e6, rel=1e-3)


@pytest.mark.parametrize(
    ("run", "n_layer", "d_model", "counted"),
    [("A", 6, 256, 5.6e17), ("B", 6, 512, 2.75e17), ("C", 8, 1024, 2.28e17)],
)
def test_6_the_isoflop_runs_differ_once_head_and_attention_count(run, n_layer, d_model, counted):
    N = shape(n_layer, d_model, 4).N
    per_token = 6 * N + 6 * 50_257 * d_model + 12 * n_layer * 1024 * d_model
    assert per_token * TRIPLE[run][1] == pytest.approx(counted, rel=5e-3)
    assert 6 * TRIPLE[run][0] * TRIPLE[run][1] == pytest.approx(1.35e17)


@pytest.mark.parametrize(
    "number",
    ["4.208", "4.348", "4.648", "18.9M", "25.2M", "201M", "50.3M", "5.6e17", "2.75e17", "2.28e17"],
)
def test_the_document_has_the_numbers(number: str):
    assert number in ERRATA
