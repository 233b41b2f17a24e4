"""A run and its cap: it does not start, cools down early, or stops, and goes on with more money."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import RECIPE, TRAIN
from x1_pretrain import paths, record, run_budget, spending
from x1_pretrain import train as trainer
from x1_pretrain.config import as_dict
from x1_pretrain.deliverables.manifest import build_manifest
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError
from x1_pretrain.run_state import State
from x1_pretrain.schedule import schedule_of
from x1_pretrain.spending import BUDGET_EXHAUSTED

ROOT = Path(__file__).resolve().parents[1]
STEPS, STEP_S = 60, 30.0
PRICE = 3.6  # a tenth of a cent a second


@pytest.fixture(autouse=True)
def scratch_here(tmp_path, monkeypatch):
    monkeypatch.setenv("X1_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(synthetic_tokens):
    def start(spec, deliver=lambda finished: None):
        return trainer.train(spec, synthetic_tokens, "off", "test", deliver)

    return start


@pytest.fixture
def plain_spec(small_spec, change):
    """60 steps, no branches."""
    return change(small_spec, schedule=schedule_of(TRAIN, RECIPE, STEPS), eval_every=20)


@pytest.fixture
def paid(plain_spec, change):
    """The same at a price, with a cap: paid(0.5)."""

    def at_cap(cap_usd):
        return change(
            plain_spec, "money", price_usd_per_hour=PRICE, cap_usd=cap_usd, assumed_mfu=1.0, project="test"
        )

    return at_cap


class Clock:
    """Time passes in the trainer's steps alone, 30 s each, so that a run of 60 takes half an hour."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock, original = Clock(), trainer.train_step

    def step(*arguments):
        clock.now += STEP_S
        return original(*arguments)

    monkeypatch.setattr(trainer, "train_step", step)
    monkeypatch.setattr(trainer, "time", clock)
    monkeypatch.setattr(spending, "now_s", clock.monotonic)
    return clock


def usd(seconds):
    return seconds * PRICE / 3600


def outcome(finished):
    losses = [(e["branch"], e["step"], e["val_loss_nats"]) for e in finished.evaluations]
    return finished.state_sha256, losses, finished.log


def test_a_run_that_would_end_above_the_cap_does_not_start_and_shows_the_sum(run, paid, change, capsys):
    spec = change(paid(0.01), "money", price_usd_per_hour=1e6)
    with pytest.raises(UserError, match=r"money.cap_usd: this run would take .* above the cap of 0.01 \$"):
        run(spec)
    printed = capsys.readouterr().err
    for line in ("training", "evaluation", "fixed", "storage", "egress", "margin", "total", "verdict"):
        assert f"\n{line}" in printed
    assert Ledger(paths.ledger()).attempts()[-1].status == "refused"


def test_the_hard_limit_stops_a_run_and_more_money_finishes_it_bit_identically(
    run, small_spec, change, capsys, clock
):
    """A run with branches cannot cool down early: it stops, with a checkpoint."""
    expected = outcome(run(small_spec))
    money = {"price_usd_per_hour": PRICE, "assumed_mfu": 1.0}
    spec = change(small_spec, "money", cap_usd=usd(400), **money)
    with pytest.raises(SystemExit) as stop:
        run(spec)
    assert stop.value.code == BUDGET_EXHAUSTED
    message = capsys.readouterr().err
    assert "The rest would take 0." in message and "raise money.cap_usd to " in message
    ledger = Ledger(paths.ledger())
    assert ledger.attempts()[-1].status == "budget_exhausted"
    assert usd(400 - 3 * STEP_S) <= ledger.total_usd() <= usd(400)
    with pytest.raises(UserError, match="above the cap"):
        run(spec)  # nothing changed: refused at once
    finished = run(change(spec, "money", cap_usd=100.0))
    assert outcome(finished) == expected and finished.measured["resumes"] == 1
    assert finished.usd_spent() > usd(400)


def test_the_cap_named_is_enough(run, small_spec, change, capsys, clock):
    money = {"price_usd_per_hour": PRICE, "assumed_mfu": 1.0}
    with pytest.raises(SystemExit):
        run(change(small_spec, "money", cap_usd=usd(400), **money))
    named = float(capsys.readouterr().err.split("raise money.cap_usd to ")[1].split()[0])
    assert run(change(small_spec, "money", cap_usd=named + 0.02, **money)).val_loss_nats > 0


def test_a_cap_for_two_fifths_of_the_steps_ends_in_a_valid_annealed_checkpoint(
    run, paid, plain_spec, clock, tmp_path, capsys
):
    (tmp_path / "schemas").symlink_to(ROOT / "schemas")
    whole = run(plain_spec)
    out = tmp_path / "out"

    def deliver(finished):
        record.write_run(finished, out / "checkpoint", out / "metrics.json", out / "curve.csv")

    cap = usd(0.4 * STEPS * STEP_S)
    spec = paid(cap)
    finished = run(spec, deliver)
    took = len(finished.log)
    assert 0.3 * STEPS <= took <= 0.4 * STEPS and Ledger(paths.ledger()).total_usd() <= cap
    assert f"of {STEPS} begins a cool-down of" in capsys.readouterr().err
    scales = [row.lr_scale for row in finished.log]
    assert scales[-1] < 0.5 * max(scales) and finished.val_loss_nats < finished.log[0].loss_nats
    fork = sum(scale == max(scales) for scale in scales) + TRAIN.warmup_steps - 1
    assert finished.log[:fork] == whole.log[:fork], "until the cool-down it is the longer run"

    run_json = json.loads((out / "checkpoint/run.json").read_text())
    manifest = build_manifest(run_json, spec.money)  # raises where it does not fit its schema
    assert manifest["status"] == "annealed" and manifest["planned_steps"] == STEPS
    assert manifest["results"]["steps"] == took and manifest["results"]["D"] == took * TRAIN.batch_tokens

    # The same command forced, with more money: from where it left the trunk, to the planned end.
    steps, original = [], trainer.train_step
    trainer.train_step = lambda *a: steps.append(1) or original(*a)
    try:
        again = run(paid(100.0), deliver)
    finally:
        trainer.train_step = original
    assert outcome(again) == outcome(whole) and len(steps) < STEPS
    assert json.loads((out / "checkpoint/run.json").read_text())["status"] == "finished"


def test_a_kill_while_it_cools_down_ends_the_same(run, paid, clock, monkeypatch):
    cap = usd(0.4 * STEPS * STEP_S)
    expected = outcome(run(paid(cap)))
    for folder in (paths.scratch_root() / "test").iterdir():
        for name in folder.iterdir():
            if name.is_dir():
                shutil.rmtree(name)
            elif name.name != "lock":
                name.unlink()
    paths.ledger().unlink()
    original, calls = trainer.train_step, []

    def dying(*arguments):
        calls.append(1)
        if len(calls) == len(expected[2]) - 1:
            raise KeyError("killed")
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", dying)
        with pytest.raises(KeyError):
            run(paid(cap))
    assert outcome(run(paid(cap + usd(5 * STEP_S)))) == expected


def test_a_free_run_never_cools_down_and_is_in_the_ledger(run, plain_spec, clock):
    finished = run(plain_spec)
    ledger = Ledger(paths.ledger())
    assert len(finished.log) == STEPS and finished.planned_steps == STEPS
    assert ledger.total_s() == STEPS * STEP_S and ledger.total_usd() == 0
    assert ledger.attempts()[0].status == "finished"


def test_the_heartbeat_changes_no_bit(run, plain_spec, monkeypatch):
    quiet = outcome(run(plain_spec))
    monkeypatch.setattr(spending, "BEAT_S", 0.002)
    assert outcome(run(plain_spec)) == quiet
    assert paths.ledger().read_text().count('"beat"') > 10


def test_no_cool_down_from_a_warmup_or_with_branches_or_a_cosine(small_spec, plain_spec):
    schedule = plain_spec.schedule
    assert schedule.cooldown_from(TRAIN.warmup_steps - 1) is None
    assert schedule.cooldown_from(schedule.branches[0].fork) is None
    assert schedule.cooldown_from(30) == 10  # a fourth of the run, as planned
    shorter = schedule.annealed(30)
    assert shorter.total_steps == 40 and shorter.annealed(None) is shorter
    assert shorter.lr_scale(shorter.branches[0], 29) == schedule.lr_scale(schedule.branches[0], 29)
    assert small_spec.schedule.cooldown_from(10) is None
    cosine = schedule_of(TRAIN, dataclasses.replace(RECIPE, schedule="cosine"), STEPS)
    assert cosine.cooldown_from(30) is None and as_dict(cosine)["kind"] == "cosine"


def test_going_back_to_the_trunk_keeps_the_time_spent():
    trunk = as_dict(State(step=30, elapsed_s=10.0, saves=3))
    later = State(step=40, elapsed_s=14.0, saves=6, resumes=2, anneal_from=30, finished=True)
    back = later.continued(trunk)
    assert (back.step, back.elapsed_s, back.saves, back.resumes) == (30, 14.0, 6, 2)
    assert back.anneal_from is None and not back.finished


def test_the_budget_reads_a_state_and_changes_nothing(paid):
    state = State(step=20, training_s=20 * STEP_S, timed_tokens=20 * TRAIN.batch_tokens)
    before = as_dict(state)
    meter = spending.Spending("test", "run", paid(1.0).money)
    run_budget.must_anneal(meter, paid(1.0), state)
    assert as_dict(state) == before
