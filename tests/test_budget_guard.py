"""The commands as a user types them."""

import dataclasses
import json
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from x1_pretrain import budget_guard
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.economics.preflight import age_text
from x1_pretrain.spending import Spending, utc_now
from x1_pretrain.study import load_study

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "experiments/profiles", tmp_path / "experiments/profiles")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spend(project, seconds, price):
    """One attempt that has ended."""
    ledger = Ledger(project / ".scratch/ledger.jsonl", "x1-pretraining")
    ledger.begin("a", "train", "X1-seed0", price, 15.0, 0.0, "2026-11-30T12:00:00+00:00")
    ledger.end("a", seconds, "2026-11-30T12:00:00+00:00", "finished")
    return ledger


def preflight(*arguments):
    budget_guard.main(["preflight", "--profile", "tiny", *arguments])


def exit_status(*arguments):
    with pytest.raises(SystemExit) as stopped:
        preflight(*arguments)
    return stopped.value.code


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
    spend(project, 3600, 49.99)
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


def test_status_tells_cap_spent_left_per_stage_and_run(project, capsys):
    ledger = spend(project, 7200, 1.5)
    ledger.begin("b", "train", "X1-seed0", 1.0, 15.0, 0.0, "2026-11-30T12:00:00+00:00")
    budget_guard.main(["status"])
    printed = capsys.readouterr().out
    assert "train X1-seed0: 3.0042 $ in 7215 s, 2 attempts, the last killed" in printed
    assert "committed     0.0000 $" in printed and "left          46.9958 $" in printed


def test_what_runs_under_way_expect_to_cost_is_committed(project, capsys, monkeypatch):
    monkeypatch.delenv("X1_SCRATCH", raising=False)
    money = dataclasses.replace(load_study().profile.money, price_usd_per_hour=1.0)
    with Spending("train", "X1-seed0", money) as spending:
        spending.expect(36015.0)
        budget_guard.main(["status"])
        printed = capsys.readouterr().out
        assert (
            "committed     10.0" in printed and "train X1-seed0" in printed and "the last running" in printed
        )
        assert exit_status("--price", "1.1", "--peak-flops", "1e11", "--cap", "10") == 3
        assert "committed     10.00 $" in capsys.readouterr().out


def test_the_ledger_of_another_project_is_refused(project, capsys):
    Ledger(project / ".scratch/ledger.jsonl", "another").begin("a", "train", "r", 1.0, 15.0, 0.0, utc_now())
    for command in (["status"], ["preflight"]):
        with pytest.raises(SystemExit) as stopped:
            budget_guard.main(command)
        assert stopped.value.code == 2
        assert "the ledger of project 'another', not of 'x1-pretraining'" in capsys.readouterr().err


def test_the_courses_table(project, capsys):
    budget_guard.main(["preflight", "--profile", "a100"])
    printed = capsys.readouterr().out
    for line in ("one day     26 $", "its data    3 $", "triple      13 $", "buffer      5 $"):
        assert line in printed
    assert "47.60 $ of 50.00 $: fits" in printed and "2026-11-30, " in printed and "days ago" in printed


@pytest.mark.parametrize("price", ["1.79", "2.50"])
def test_a_higher_price_refuses_the_courses_plan_and_plans_again(project, capsys, price):
    with pytest.raises(SystemExit) as stopped:
        budget_guard.main(["preflight", "--profile", "a100", "--price", price])
    assert stopped.value.code == 3
    printed = capsys.readouterr().out
    assert "of 50.00 $: refused" in printed and "plan again: at most 1.167 $/h" in printed
    assert "or the triple in 2 h" in printed


def test_above_the_cap_a_cheaper_card_is_proposed_that_fits(project, capsys):
    with pytest.raises(SystemExit):
        budget_guard.main(["preflight", "--profile", "a100", "--price", "9"])
    printed = capsys.readouterr().out
    assert "or one A100 80GB PCIe spot at 1.19 $/h (RunPod, as deploybase lists it, 2026-03-01" in printed
    assert "egress        3.00 $ (200 GB" in printed


@pytest.mark.parametrize(
    "old, new, named",
    [
        ("currency: USD", "currency: EUR", "currency"),
        ("  currency: USD\n", "", "missing key 'currency'"),
        ('price_date: "2026-11-30"', 'price_date: "some time ago"', "is not a date"),
        ('price_date: "2026-11-30"', 'price_date: ""', "is not a date"),
        ("price_usd_per_hour: 1.1\n", "price_usd_per_hour: -1.1\n", "price_usd_per_hour"),
        ("  price_usd_per_hour: 1.1\n", "", "missing key 'price_usd_per_hour'"),
        ("cap_usd: 50.0", "cap_usd: 0.0", "cap_usd"),
    ],
)
def test_a_price_of_unknown_age_or_currency_is_refused(project, capsys, old, new, named):
    path = project / "experiments/profiles/a100.yaml"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(SystemExit) as stopped:
        budget_guard.main(["preflight", "--profile", "a100"])
    assert stopped.value.code == 2
    assert named in capsys.readouterr().err


def run_guarded(project, *command):
    arguments = [sys.executable, "-m", "x1_pretrain.budget_guard", "run", *command]
    return subprocess.run(arguments, cwd=project, capture_output=True, text=True, timeout=120, check=False)


def test_a_command_runs_within_the_cap(project):
    free = run_guarded(project, "--", "sh", "-c", "exit 7")
    assert free.returncode == 7 and "at most" not in free.stderr
    paid = run_guarded(project, "--profile", "a100", "--", "echo", "ran")
    assert (
        paid.returncode == 0 and paid.stdout == "ran\n" and "at most 45.42 h for the 50.00 $" in paid.stderr
    )
    spend(project, 3600, 49.999)
    spent = run_guarded(project, "--profile", "a100", "--", "echo", "ran")
    assert spent.returncode == 2 and "too little to start" in spent.stderr and not spent.stdout


def test_old_and_future_prices_are_said_to_be():
    today = date(2026, 11, 30)
    assert age_text("2026-11-30", today) == "2026-11-30, 0 days ago"
    assert "look it up again" in age_text("2026-08-01", today)
    assert "one of the two is wrong" in age_text("2026-12-01", today)
