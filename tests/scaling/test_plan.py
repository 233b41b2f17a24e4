"""The planner's command, in this process."""

import json
import sys
from pathlib import Path

import pytest

from x1_pretrain.scaling import plan
from x1_pretrain.scaling.posterior import Sampling
from x1_pretrain.scaling.published import HOFFMANN

THREE = "run_id,N,D,val_loss\nA,5e6,4.5e9,4.648\nB,25e6,0.9e9,4.208\nC,100e6,0.225e9,4.348\n"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["plan", *arguments])
        plan.main()
        return capsys.readouterr().out

    return run


def test_a_published_law_gives_numbers_without_intervals(command):
    found = json.loads(command("--law", "hoffmann", "--flops", "1e20", "--json"))
    assert found["compute_optimal"]["N"]["median"] == pytest.approx(HOFFMANN.law.n_opt(1e20))
    text = command("--law", "hoffmann", "--flops", "1e20", "--size", "3e9")
    assert "N = 3B: loss +" in text and "95%" not in text


def test_dollars_are_flops_at_the_price_and_mfu(command):
    money = ("--usd", "50", "--gpu", "A100", "--price", "1.10", "--mfu", "0.35")
    found = json.loads(command("--law", "besiroglu", *money, "--json"))
    assert found["flops"] == pytest.approx(50 / 1.10 * 3600 * 312e12 * 0.35)
    assert "50 dollars" in command("--law", "besiroglu", *money)


def test_serving_is_planned_in_flops_or_dollars(command):
    serve = ("--prompt-tokens", "1e13", "--generated-tokens", "2.5e12", "--loss", "1.95")
    found = json.loads(command("--law", "hoffmann", "--flops", "1e23", *serve, "--json"))["served"]
    assert found["in"] == "FLOPs" and found["effective_tokens"] == 1.25e13
    assert found["N_over_compute_optimal"]["median"] < 0.7
    prices = ("--gpu", "A100", "--price", "1.4", "--serve-gpu", "A100", "--serve-price", "0.6")
    money = json.loads(command("--law", "hoffmann", "--flops", "1e23", *serve, *prices, "--json"))["served"]
    assert money["in"] == "dollars" and money["effective_tokens"] < 1.25e13
    assert "least dollars over its life" in command("--law", "hoffmann", "--flops", "1e23", *serve, *prices)


def test_runs_give_intervals_and_the_next_run(command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(plan, "SAMPLING", Sampling(walkers=100, steps=1000))
    (tmp_path / "runs.csv").write_text(THREE)
    runs = ("--runs", str(tmp_path / "runs.csv"), "--flops", "1e18")
    found = json.loads(command(*runs, "--prompt-tokens", "1e11", "--json"))
    low, high = found["compute_optimal"]["N"]["ci95"]
    assert low < found["compute_optimal"]["N"]["median"] < high
    assert found["next_run"]["most_telling"]["flops"] <= 1e18
    assert 0 < found["next_run"]["most_telling"]["shrink"] < 1
    text = command(*runs)
    assert "(95% " in text and "half as telling, for less" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--usd", "50"), "--gpu, --price: both are needed"),
        (("--usd", "50", "--gpu", "Z9", "--price", "1"), "--gpu: 'Z9' is not in the hardware table"),
        (("--usd", "50", "--gpu", "A100", "--price", "0"), "0 dollars per hour buy any amount"),
        (("--flops", "-1"), "--flops: -1.0 must be a finite number above 0"),
        (("--flops", "1e20", "--prompt-tokens", "-5"), "--prompt-tokens: -5.0 must be 0 or more"),
        (("--flops", "1e20", "--prompt-tokens", "5", "--loss", "1.5"), "1.5 is not reached by any run"),
        (("--usd", "50", "--gpu", "A100", "--price", "1", "--mfu", "40"), "mfu: 40.0 must be above 0"),
    ],
)
def test_a_mistake_is_one_sentence(command, capsys: pytest.CaptureFixture[str], arguments, says):
    with pytest.raises(SystemExit) as caught:
        command("--law", "hoffmann", *arguments)
    error = capsys.readouterr().err
    assert caught.value.code == 2 and says in error and error.count("\n") == 1
