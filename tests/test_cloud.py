"""The rental: what it can cost at most, the commands it runs, and what comes home."""

import dataclasses
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import MONEY
from x1_pretrain import cloud, paths
from x1_pretrain.cloud import OTHER_USD, STARTING_MINUTES, Commands, Rental, adopt_ledger, task_for
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError
from x1_pretrain.study import load_profile
from x1_pretrain.typed_yaml import read_yaml

ROOT = Path(__file__).parents[1]
LEDGER = Path(".scratch/ledger.jsonl")
PAID = dataclasses.replace(MONEY, gpu="a100-80gb", price_usd_per_hour=1.1, cap_usd=50.0)


def test_the_committed_task_is_that_of_the_a100_profile():
    money = load_profile(ROOT / paths.PROFILES / "a100.yaml").money
    text = (ROOT / cloud.TASK).read_text(encoding="utf-8")
    assert task_for(Rental(money, 0.0), text, LEDGER) == text
    stop = read_yaml(ROOT / cloud.TASK)["resources"]["autostop"]
    seconds = ((money.cap_usd - OTHER_USD) / money.price_usd_per_hour) * 3600
    assert stop["idle_minutes"] == math.floor(seconds / 60 - STARTING_MINUTES)
    assert stop["down"] is True and stop["wait_for"] == "none"


def test_no_step_runs_before_the_clock_of_the_kill_starts():
    """SkyPilot sets autostop after `setup`: what hangs there is never killed."""
    assert "setup" not in read_yaml(ROOT / cloud.TASK)


money_values = {
    "price": st.floats(0.01, 100),
    "cap": st.floats(0.1, 1e4),
    "spent": st.floats(0, 1e4),
    "hours": st.none() | st.floats(0.1, 1e3),
}


@settings(deadline=None)
@given(**money_values)
def test_the_worst_bill_is_never_above_what_the_cap_leaves(price, cap, spent, hours):
    money = dataclasses.replace(PAID, price_usd_per_hour=price, cap_usd=cap)
    try:
        rental = Rental(money, spent, hours)
    except UserError as error:
        assert "leaves no time" in str(error)
        return
    minutes = rental.kill_minutes + STARTING_MINUTES
    assert spent + OTHER_USD + minutes / 60 * price <= cap * (1 + 1e-9)
    assert rental.worst_usd == pytest.approx(OTHER_USD + minutes / 60 * price)
    assert 0 < rental.work_minutes < rental.kill_minutes
    if hours is None:  # and it is not needlessly early
        assert spent + OTHER_USD + (minutes + 1) / 60 * price > cap * (1 - 1e-9)
    else:
        assert rental.kill_minutes <= hours * 60


def test_what_cannot_be_rented_is_refused():
    with pytest.raises(UserError, match=r"0\.0 \$/h and None; set profile: a100"):
        Rental(MONEY, 0.0)
    with pytest.raises(UserError, match=r"50\.00 \$ less 46\.50 \$ already spent .* raise the cap"):
        Rental(PAID, 46.5)
    for hours in (0, -1, math.nan, math.inf):
        with pytest.raises(UserError, match="--hours"):
            Rental(PAID, 0.0, hours)


def test_the_task_gets_the_rentals_numbers_and_keeps_the_rest():
    money = dataclasses.replace(PAID, gpu="h100", price_usd_per_hour=3.0, cap_usd=30.0)
    text = task_for(Rental(money, 6.0), (ROOT / cloud.TASK).read_text(encoding="utf-8"), Path("/else/l"))
    assert "accelerators: {H100: 1}" in text and "max_hourly_cost: 3.0" in text
    assert "idle_minutes: 400, down: true, wait_for: none" in text  # (30 - 6 - 3) / 3 h - 20 min
    assert 'WORK_MINUTES: "370"' in text and "spent.jsonl: /else/l" in text
    with pytest.raises(UserError, match="idle_minutes must stand there once, found 0 times"):
        task_for(Rental(money, 6.0), text.replace("idle_minutes", "minutes"), LEDGER)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with the launcher's files, in which `sky` and `rsync` write down how they were called."""
    for name in ("params.yaml", "cloud", "experiments/profiles"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    params = (tmp_path / "params.yaml").read_text().replace("profile: tiny", "profile: a100", 1)
    (tmp_path / "params.yaml").write_text(params)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    remote = store\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sky", "rsync", "dvc"):
        path = programs / name
        path.write_text(
            f'#!/bin/sh\necho "{name} $*" >> called\n'
            f'if [ "{name}" = rsync ] && [ -e there ]; then\n'
            'case "$3" in *ledger.jsonl) cp there "$3";; esac\nfi\n'
            f'[ ! -e fail-{name}-"$1" ]\n'
        )
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(project: Path) -> list[str]:
    path = project / "called"
    return [" ".join(line.split()[:2]) for line in path.read_text().splitlines()] if path.exists() else []


LINE = '{"attempt": "1", "event": "beat", "elapsed_s": 3600.0, "utc": "2026-11-30T00:00:00+00:00"}\n'


def spend(path: Path, hours: float) -> None:
    """A ledger with one attempt of so many hours at 1.1 $."""
    ledger, utc = (
        Ledger(path, load_profile(ROOT / paths.PROFILES / "a100.yaml").money.project),
        "2026-11-30T00:00:00+00:00",
    )
    ledger.begin("1", "train", "X1-seed0", 1.1, 15.0, 0.0, utc)
    ledger.end("1", hours * 3600, utc, "finished")


def test_a_dry_run_prints_every_command_and_the_bill_and_does_nothing(project, capsys):
    cloud.main(["--dry-run"])
    text = capsys.readouterr().out
    assert called(project) == [] and not (project / ".scratch").exists()
    assert "worst bill      50.00 $" in text or "worst bill      49.9" in text
    for command in ("$ sky launch --yes --cluster x1", "$ rsync -az --relative", "$ sky down --yes x1"):
        assert command in text
    assert "wait_for: none" in text and "$ dvc pull" in text
    for command in ("make setup", "dvc pull --run-cache", "dvc repro", "dvc push --run-cache"):
        assert command in text


def test_a_dry_run_may_show_another_profile_but_only_params_yaml_is_run(project, capsys):
    params = project / "params.yaml"
    params.write_text(params.read_text().replace("profile: a100", "profile: tiny", 1))
    cloud.main(["--dry-run", "--profile", "a100"])
    assert "profile a100" in capsys.readouterr().out
    for arguments in (["--profile", "a100"], ["--dry-run"]):
        with pytest.raises(SystemExit):
            cloud.main(arguments)
        assert "set profile: a100" in capsys.readouterr().err


def test_a_run_launches_fetches_and_ends_the_machine(project):
    spend(project / "there", 1.0)
    cloud.main([])
    assert called(project) == ["sky launch", "rsync -az", "rsync -az", "sky down", "dvc pull"]
    assert Ledger(project / ".scratch/ledger.jsonl").total_usd() == pytest.approx(1.1)
    assert "idle_minutes: 2543" in (project / ".scratch/cloud/sky.yaml").read_text()


def test_what_was_spent_shortens_the_machines_life(project, capsys):
    spend(project / ".scratch/ledger.jsonl", 10.0)
    cloud.main(["--dry-run"])
    assert f"killed after    {2543 - 600} min" in capsys.readouterr().out


def test_a_study_that_fails_there_still_comes_home(project):
    spend(project / "there", 1.0)
    (project / "fail-sky-launch").touch()
    with pytest.raises(SystemExit) as stop:
        cloud.main([])
    assert stop.value.code == 1
    assert called(project)[1:] == ["rsync -az", "rsync -az", "sky down", "dvc pull"]


def test_a_machine_is_kept_while_its_results_are_not_here(project, capsys):
    (project / "fail-rsync--az").touch()
    with pytest.raises(SystemExit):
        cloud.main(["--fetch"])
    assert called(project) == ["rsync -az"]
    assert "if there is a machine it is kept" in capsys.readouterr().err


def test_nothing_is_rented_without_a_place_for_the_results(project, capsys, monkeypatch):
    (project / ".dvc/config").write_text("[core]\n    analytics = false\n")
    with pytest.raises(SystemExit):
        cloud.main([])
    assert "names no remote" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit):
        cloud.main([])
    assert "sky: not installed" in capsys.readouterr().err
    assert called(project) == []


def test_a_ledger_that_grew_here_meanwhile_is_not_overwritten(tmp_path):
    own, fetched = tmp_path / "ledger.jsonl", tmp_path / "fetched.jsonl"
    own.write_text(LINE * 2)
    fetched.write_text(LINE + LINE.replace("3600", "7200"))
    with pytest.raises(UserError, match="append the machine's new lines"):
        adopt_ledger(fetched, own)
    assert own.read_text() == LINE * 2 and fetched.exists()
    fetched.write_text(LINE * 3)
    adopt_ledger(fetched, own)
    assert own.read_text() == LINE * 3 and not fetched.exists()


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed here")
def test_results_come_home_and_nothing_else_does(tmp_path):
    there, here = tmp_path / "there/sky_workdir", tmp_path / "here"
    here.mkdir()
    x1 = "experiments/X1-pretraining"
    kept = ("dvc.lock", "data/tokens.json", f"{x1}/score.json", f"{x1}/measured/train.json")
    left = (
        f"{x1}/run-cloud/checkpoint/model.safetensors",
        "experiments/profiles/a100.yaml",
        "data/tokens/a.bin",
    )
    for name in (*kept, *left):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_text("made there")
    command = Commands(Path("task"), Path("ledger")).results
    command = [part.replace(f"{cloud.CLUSTER}:", f"{tmp_path / 'there'}/") for part in command]
    subprocess.run(command, cwd=here, check=True)  # data/curation.json is missing, as after a failure
    assert {str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()} == set(kept)


@pytest.mark.parametrize("minutes", ["", "0", "-5", "1.5", "soon"])
def test_the_machines_script_wants_whole_minutes(minutes, tmp_path):
    done = subprocess.run(
        [ROOT / "cloud/on_machine.sh", minutes], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "minutes" in done.stderr


@pytest.mark.parametrize("repro_status", [0, 3])
def test_the_machines_script_pushes_whatever_repro_said(tmp_path, repro_status):
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("make", "dvc", "python"):
        path = programs / name
        fails = f'[ "$1" != repro ] || exit {repro_status}' if name == "dvc" else ""
        path.write_text(f'#!/bin/sh\necho "{name} $1" >> called\n{fails}\n')
        path.chmod(0o755)
    (programs / "python3").symlink_to("/bin/true")  # new enough
    (tmp_path / "spent.jsonl").write_text(LINE)
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    script = [ROOT / "cloud/on_machine.sh", "5", "spent.jsonl"]
    done = subprocess.run(script, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == repro_status
    expected = ["make setup", "dvc pull", "dvc repro", "dvc push"] + ([] if repro_status else ["python -m"])
    assert (tmp_path / "called").read_text().splitlines() == expected
    assert (tmp_path / ".scratch/ledger.jsonl").read_text() == LINE
