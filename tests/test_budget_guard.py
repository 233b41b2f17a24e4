"""The commands as a user types them, and the meter as the training loop uses it."""

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain import budget_guard
from x1_pretrain.budget_guard import BudgetGuard
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "experiments/profiles", tmp_path / "experiments/profiles")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def preflight(*arguments):
    budget_guard.main(["preflight", "--profile", "tiny", *arguments])


def exit_status(*arguments):
    with pytest.raises(SystemExit) as stopped:
        preflight(*arguments)
    return stopped.value.code


@given(st.floats(0, 10), st.floats(0.01, 100), st.floats(0, 100), st.floats(0, 1e6))
def test_meter_is_linear_and_stops_at_the_cap(price, cap, already, elapsed_s):
    guard = BudgetGuard(price, cap, already)
    assert guard.spent_usd(elapsed_s) == pytest.approx(already + elapsed_s * price / 3600)
    assert guard.exhausted(elapsed_s) == (price > 0 and guard.spent_usd(elapsed_s) >= cap)


def test_meter_counts_earlier_attempts():
    assert not BudgetGuard(1.0, 2.0, 0.0).exhausted(3600)
    assert BudgetGuard(1.0, 2.0, 1.0).exhausted(3600)


@pytest.mark.parametrize("price", [None, -1.0, math.nan, math.inf])
def test_meter_refuses_a_bad_price(price):
    with pytest.raises(UserError, match="price"):
        BudgetGuard(price, 50.0, 0.0)


@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan])
def test_meter_refuses_a_bad_cap(cap):
    with pytest.raises(UserError, match="cap_usd"):
        BudgetGuard(1.0, cap, 0.0)


def test_free_machine_fits_without_a_known_peak(project, capsys):
    preflight()
    printed = capsys.readouterr().out
    assert "train X1" in printed and "sweep C" in printed and "unknown time" in printed
    assert "total         0.00 $" in printed


def test_sum_adds_up_and_the_margin_is_ten_percent(project, capsys):
    preflight("--price", "1.1", "--peak-flops", "1e10")
    printed = capsys.readouterr().out.splitlines()
    usd = {line[:14].strip(): line[14:].split()[0] for line in printed}
    assert float(usd["margin 10%"]) == pytest.approx(float(usd["compute cost"]) / 10, abs=0.01)
    total = float(usd["compute cost"]) + float(usd["margin 10%"]) + float(usd["already spent"])
    assert float(usd["total"]) == pytest.approx(total, abs=0.02)


def test_above_the_cap_exits_3_and_what_is_proposed_fits(project, capsys):
    above = ("--peak-flops", "8e9", "--model", "X1")
    assert exit_status("--price", "20", *above) == 3
    printed = capsys.readouterr().out
    assert "refused" in printed and "what fits" in printed
    proposed = printed.split("at most ")[1].split(" $/h")[0]
    preflight("--price", str(float(proposed) - 0.001), *above)
    assert exit_status("--price", str(float(proposed) + 0.01), *above) == 3


def test_money_already_spent_counts(project, capsys):
    Ledger(project / ".scratch/ledger.jsonl").charge("earlier", 3600, 49.99)
    assert exit_status("--price", "1.1", "--peak-flops", "1e11") == 3
    assert "already spent 49.99 $" in capsys.readouterr().out


def test_measured_peak_of_this_cpu_is_used(project, capsys):
    measured = project / "experiments/X1-pretraining/measured/train.json"
    measured.parent.mkdir(parents=True)
    measured.write_text(json.dumps({"measured_peak_flops": 8.6e11, "elapsed_s": 200.0}))
    preflight()
    assert "8.6e+11 FLOP/s (measured)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("--price", "nan"), "--price"),
        (("--price", "-1"), "--price"),
        (("--price", "1.1"), "peak"),
        (("--gpu", "a9000"), "RTX 5090"),
        (("--peak-flops", "0"), "--peak-flops"),
        (("--cap", "0"), "--cap"),
        (("--mfu", "2", "--gpu", "a100"), "mfu"),
        (("--model", "Z"), "valid models"),
        (("--profile", "huge"), "valid profiles"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(project, capsys, arguments, named):
    assert exit_status(*arguments) == 2
    message = capsys.readouterr().err
    assert named in message and message.count("\n") == 1


def test_status_tells_cap_spent_left_and_runs(project, capsys):
    Ledger(project / ".scratch/ledger.jsonl").charge("X1-seed0", 7200, 1.5)
    budget_guard.main(["status"])
    printed = capsys.readouterr().out
    assert "X1-seed0: 3.0000 $" in printed and "left          47.0000 $" in printed
