import re
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RECIPE
from x1_pretrain.errors import UserError
from x1_pretrain.scaling.fit_json import fit_json
from x1_pretrain.scaling.prediction import planned_runs, prediction_json
from x1_pretrain.scaling.prediction_text import count, factor, prediction_markdown, ratio
from x1_pretrain.scaling.score import score_json
from x1_pretrain.study import load_profile

TINY = Path(__file__).parents[2] / "experiments/profiles/tiny.yaml"
TEXT = {"tokenizer": "gpt2:1024", "domains": ["aws", "wiki"]}


@pytest.fixture(scope="module")
def planned():
    return planned_runs(load_profile(TINY), RECIPE, ("A", "B", "C"))


@pytest.fixture(scope="module")
def prediction(tiny_study, planned):
    return prediction_json(tiny_study, 1e9, planned, TEXT)


def test_planned_runs_are_whole_steps_of_the_budget(planned):
    by_model = {run.model: run for run in planned}
    X1 = by_model["X1"]
    assert X1.N == 442_368 and X1.D % 4096 == 0 and X1.held_out
    flops = 6 * X1.N * X1.D
    assert flops == pytest.approx(load_profile(TINY).models["X1"].flops, rel=1e-3)
    assert [run.model for run in planned if not run.held_out] == ["A", "B", "C"]


def test_the_held_out_loss_is_predicted_with_its_noise(prediction, tiny_study):
    X1 = next(run for run in prediction["planned"] if run["model"] == "X1")
    low, high = X1["loss_nats"]["ci95"]
    truth = 0.5 + 34 / X1["N"] ** 0.29 + 120 / X1["D"] ** 0.30
    assert low < truth < high
    sigma = np.median(tiny_study.posterior.sigma)
    assert high - low > 3 * sigma * truth


def test_the_target_is_far_away_and_says_so(prediction):
    target = prediction["target"]
    assert target["kind"] == "extrapolation"
    assert target["decades_in_N"] == pytest.approx(np.log10(1e9 / 786_432))
    assert target["D_per_N"]["median"] == pytest.approx(target["D_opt"]["median"] / 1e9)
    assert 0 < target["prior_share"] < 1
    low, high = target["D_opt"]["ci95"]
    prior_low, prior_high = target["D_opt"]["prior_ci95"]
    assert high / low < prior_high / prior_low


def test_the_document_says_what_the_numbers_say(prediction, tiny_study, quick):
    text = prediction_markdown(fit_json(tiny_study, quick), prediction)
    low, high = prediction["target"]["D_opt"]["ci95"]
    assert f"95% interval {count(low)} to {count(high)}" in text
    low, high = prediction["target"]["D_per_N"]["ci95"]
    assert f"95% interval {ratio(low)} to {ratio(high)}" in text
    contains = "contains 20" if low <= 20 <= high else "does not contain 20"
    assert contains in text
    rho = tiny_study.posterior.rho
    assert f"runs of one size share {np.median(rho):.2f} (95% interval " in text
    assert "3.1 decades" in text and "gpt2:1024" in text and "MassiveText" in text
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == [
        "The held-out run", "Against the published Chinchilla number", "How far this extrapolates",
    ]  # fmt: skip
    assert "nan" not in text.split() and "None" not in text


def test_three_points_are_called_unidentified_in_the_document(three_study, planned, quick):
    content = prediction_json(three_study, 1e9, planned, TEXT)
    text = prediction_markdown(fit_json(three_study, quick), content)
    assert "**The runs do not identify the law**: 3 distinct points cannot fix five parameters" in text
    assert "weak evidence" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [(442_368, "442k"), (1e9, "1B"), (22.6e9, "22.6B"), (999_900, "1M"), (1.5e13, "15T"), (999, "999")],
)
def test_counts_read_well(value: float, text: str):
    assert count(value) == text


def metrics_of(prediction, observed: float, **other):
    X1 = next(run for run in prediction["planned"] if run["model"] == "X1")
    return {"model": "X1", "N": X1["N"], "D": X1["D"], "val_loss_nats": observed, **other}


def test_a_hit_and_a_miss(prediction, tiny_study):
    X1 = next(run for run in prediction["planned"] if run["model"] == "X1")
    median, (low, high) = X1["loss_nats"]["median"], X1["loss_nats"]["ci95"]

    def score(observed):
        return score_json(prediction, metrics_of(prediction, observed), tiny_study.posterior, "0" * 64)

    at_median = score(median)
    assert at_median["hit"] and at_median["held_out"] and at_median["error_nats"] == 0
    assert at_median["rank"] == pytest.approx(0.5, abs=1e-3)
    assert score(low)["rank"] == pytest.approx(0.025, abs=1e-3)
    miss = score(high + 0.1)
    assert not miss["hit"] and miss["rank"] > 0.975 and miss["error_nats"] > 0.1


def test_a_prediction_of_something_else_is_refused(prediction, tiny_study):
    posterior = tiny_study.posterior
    with pytest.raises(UserError, match=r"another .*runs\.csv"):
        score_json(prediction, metrics_of(prediction, 2.5), posterior, "1" * 64)
    with pytest.raises(UserError, match="D is 4096, but"):
        score_json(prediction, metrics_of(prediction, 2.5, D=4096), posterior, "0" * 64)
    with pytest.raises(UserError, match=r"model 'Z' was not predicted; .* has A, B, C, X1"):
        score_json(prediction, metrics_of(prediction, 2.5, model="Z"), posterior, "0" * 64)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.04, "1.0"), (2.24, "2.2"), (71.3, "71"), (106.2, "110"), (634.0, "630"), (12345.0, "12,000")],
)
def test_factors_have_two_digits_written_out(value, text):
    assert factor(value) == text
