"""The meter of a process: charged is never less than the time took, nor more than the cap and one round."""

import dataclasses
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.conftest import MONEY
from x1_pretrain import spending as module
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError
from x1_pretrain.spending import BEAT_S, LATE_S, Spending

PAID = dataclasses.replace(MONEY, price_usd_per_hour=3600.0, cap_usd=600.0)  # a dollar a second


@pytest.fixture(autouse=True)
def ledger_here(tmp_path, monkeypatch):
    monkeypatch.setenv("X1_SCRATCH", str(tmp_path))
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def clock(monkeypatch):
    """clock.append(seconds) sets what `now_s` says."""
    readings = [1000.0]
    monkeypatch.setattr(module, "now_s", lambda: readings[-1])
    return readings


def test_what_happens_inside_is_charged_whatever_ends_it(ledger_here, clock):
    for status, error in (("finished", None), ("failed", ValueError()), ("failed", SystemExit(4))):
        try:
            with Spending("train", "run", PAID):
                clock.append(clock[-1] + 20)
                if error:
                    raise error
        except (ValueError, SystemExit):
            pass
        attempt = Ledger(ledger_here).attempts()[-1]
        assert (attempt.status, attempt.charged_usd) == (status, 20.0)


def test_a_free_machine_is_metered_too_and_never_exhausted(ledger_here, clock):
    with Spending("train", "run", MONEY) as spending:
        clock.append(clock[-1] + 1e9)
        assert not spending.exhausted()
    assert Ledger(ledger_here).total_s() == 1e9 and Ledger(ledger_here).total_usd() == 0


def test_the_cap_counts_other_runs_and_a_round_of_the_loop(clock):
    with Spending("train", "other", PAID):
        clock.append(clock[-1] + 400)
    with Spending("train", "run", PAID) as spending:
        assert not spending.exhausted()
        clock.append(clock[-1] + 60)
        assert not spending.exhausted()  # 125 s are left, and a round takes 60
        clock.append(clock[-1] + 70)
        assert spending.exhausted()  # 55 s are left, and a round took 70


def test_who_lives_is_known_without_a_clock(ledger_here, monkeypatch):
    with Spending("train", "a", PAID) as first, Spending("train", "b", PAID) as second:
        monkeypatch.setattr(module, "utc_now", lambda: "1970-01-01T00:00:00+00:00")
        first.beat()
        assert [a.run_id for a in second.others_alive()] == ["a"]
    assert second.others_alive() == []
    killed = Spending("train", "c", PAID)
    killed.__enter__()
    (attempt,) = first.others_alive()
    killed._leaving.set()
    killed._alive.close()  # as the system does with a process that is killed
    assert attempt.run_id == "c" and not module.alive(attempt)


def test_a_thread_beats(monkeypatch, ledger_here):
    monkeypatch.setattr(module, "BEAT_S", 0.02)
    with Spending("train", "run", PAID):
        beaten = threading.Event()
        while not beaten.wait(0.02):
            if ledger_here.read_text().count('"beat"') >= 2:
                beaten.set()
    assert Ledger(ledger_here).attempts()[-1].status == "finished"


def test_a_heartbeat_that_cannot_be_written_stops_the_work(monkeypatch, ledger_here):
    monkeypatch.setattr(module, "BEAT_S", 0.01)
    with pytest.raises(UserError, match=r"line \d+ is not JSON"), Spending("train", "run", PAID) as spending:
        ledger_here.write_text("no ledger\n" * 999)
        while True:
            spending.exhausted()


HANGS = """
import dataclasses, sys, time
sys.path.insert(0, sys.argv[1])
from tests.conftest import MONEY
from x1_pretrain import spending
spending.BEAT_S = 0.05
money = dataclasses.replace(MONEY, dead_man_minutes=0.2 / 60, stop_command="echo stopping the machine")
with spending.Spending("train", "run", money) as meter:
    meter.exhausted()
    time.sleep(60)
"""


def test_a_run_that_hangs_ends_itself_and_stops_the_machine(ledger_here):
    root = os.path.dirname(os.path.dirname(__file__))
    done = subprocess.run(
        [sys.executable, "-c", HANGS, root], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == module.DEAD_MAN
    assert "no step for" in done.stderr and "stopping the machine" in done.stdout
    assert Ledger(ledger_here).attempts()[-1].status == "hung"


ENDLESS = """
import dataclasses, sys, time
sys.path.insert(0, sys.argv[1])
from tests.conftest import MONEY
from x1_pretrain import spending
spending.BEAT_S = spending.LATE_S = 0.05
money = dataclasses.replace(MONEY, price_usd_per_hour=3600.0, cap_usd=0.5)
with spending.Spending("spike", "run", money):
    time.sleep(60)
"""


def test_a_stage_that_asks_nothing_is_ended_at_the_cap(ledger_here):
    root = os.path.dirname(os.path.dirname(__file__))
    command = [sys.executable, "-c", ENDLESS, root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == module.BUDGET_EXHAUSTED and "the cap of 0.5 $ is reached" in done.stderr
    assert Ledger(ledger_here).attempts()[-1].status == "budget_exhausted"


def test_a_stages_main_is_charged_from_the_start_of_the_process(ledger_here, monkeypatch):
    study = SimpleNamespace(choice=SimpleNamespace(model="X1", seed=3), profile=SimpleNamespace(money=PAID))
    monkeypatch.setattr(module, "load_study", lambda: study)
    monkeypatch.setattr(module, "process_start_s", lambda: module.now_s() - 100)
    ran = []
    module.charged("inference")(lambda: ran.append(1))()
    (attempt,) = Ledger(ledger_here).attempts()
    assert (attempt.stage, attempt.run_id, attempt.status) == ("inference", "X1-seed3", "finished")
    assert ran == [1] and 100 <= attempt.charged_s < 160
    monkeypatch.setattr(module, "process_start_s", lambda: module.now_s() - 600)
    with pytest.raises(UserError, match=r"the cap of 600.00 \$ is spent .* so spike does not start"):
        module.charged("spike")(lambda: ran.append(1))()
    assert ran == [1] and len(Ledger(ledger_here).attempts()) == 1


def test_every_stage_that_computes_is_charged():
    root = Path(__file__).resolve().parents[1]
    for name in ("fetch", "curate", "tokenize_text", "fit", "spike", "inference"):
        assert "@exit_on_user_error\n@charged(" in (root / f"stages/{name}.py").read_text(), name
    for name in ("train", "sweep"):  # the trainer has a meter of its own
        assert "since_s=since_s" in (root / f"stages/{name}.py").read_text(), name


SINCE = """
import time
time.sleep(0.3)
from x1_pretrain import spending
print(spending.now_s() - spending.process_start_s())
"""


def test_time_begins_with_the_process():
    command = [sys.executable, "-c", SINCE]
    took = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 0.3 <= float(took) < 120


class Process:
    """One stage of the machine below: rounds of work, a checkpoint at the cap, a beat when it is due."""

    def __init__(self, money, round_s):
        self.spending, self.round_s = Spending("train", "run", money), round_s
        self.spending._thread = threading.Thread(target=lambda: None)  # the machine beats instead
        self.true_s, self.in_round_s, self.since_beat_s, self.saving = 0.0, 0.0, 0.0, False
        self.spending.__enter__()
        self.spending.exhausted()

    def advance(self, seconds, late_s):
        """Returns False once it has ended by itself."""
        self.true_s += seconds
        self.in_round_s += seconds
        self.since_beat_s += seconds
        if self.since_beat_s >= BEAT_S + late_s:
            self.spending.beat()
            self.since_beat_s = 0.0
        if self.in_round_s >= self.round_s:
            self.in_round_s = 0.0
            if self.saving or self.spending.exhausted():
                if self.saving:
                    self.spending.__exit__(SystemExit, None, None)
                    return False
                self.saving = True  # its checkpoint takes a round
        return True


class Money(RuleBasedStateMachine):
    """Runs, kills at any moment, resumes, jumps of the wall's clock, two stages at a time."""

    TICK_S, ROUND_S, STAGES = 1.0, 7.0, 2  # rounds and checkpoints take as long

    def __init__(self):
        super().__init__()
        self.now, self.wall, self.running, self.true_s = 0.0, 0.0, [], 0.0
        module.now_s = lambda: self.now
        path = module.paths.ledger()
        path.unlink(missing_ok=True)
        self.ledger = Ledger(path)

    @precondition(lambda self: len(self.running) < self.STAGES)
    @rule()
    def start(self):
        fresh = Spending("train", "run", PAID)
        if fresh.left_s() > 2 * self.ROUND_S * self.STAGES:  # a run's estimate has a start and a checkpoint
            self.running.append(Process(PAID, self.ROUND_S))

    @rule(ticks=st.integers(1, 40), late_s=st.floats(0, LATE_S - 1))
    def work(self, ticks, late_s):
        for _ in range(ticks):
            self.now += self.TICK_S
            for process in list(self.running):
                self.true_s += self.TICK_S
                if not process.advance(self.TICK_S, late_s):
                    self.running.remove(process)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 1))
    def kill(self, index):
        killed = self.running.pop(index % len(self.running))
        killed.spending._alive.close()  # as the system does

    @rule(hours=st.floats(-1e5, 1e5))
    def wall_clock_jumps(self, hours):
        self.wall += hours
        module.utc_now = lambda: f"20{26 + int(self.wall) % 60:02d}-11-30T12:00:00+00:00"

    @invariant()
    def never_less_than_the_time(self):
        assert self.ledger.total_usd() >= self.true_s - 1e-6

    @invariant()
    def never_more_than_the_cap_and_a_checkpoint_of_each_stage(self):
        assert self.ledger.total_usd() <= PAID.cap_usd + self.STAGES * self.ROUND_S + 1e-6


@pytest.fixture(autouse=True)
def real_clocks():
    """The machine replaces them."""
    clocks = module.now_s, module.utc_now
    yield
    module.now_s, module.utc_now = clocks


def test_any_sequence_of_runs_kills_resumes_and_clock_jumps(monkeypatch):
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: None
    )  # no machine fails here, and there are thousands
    Money.TestCase.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
    Money.TestCase("runTest").runTest()


@settings(deadline=None)
@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_left_is_linear(spent_s, more_s):
    spending = Spending("train", "run", PAID)
    spending.since_s, spending.ledger = 0.0, Ledger(spending.ledger.path.with_name("none.jsonl"))
    module.now_s = lambda: spent_s
    before = spending.left_s()
    module.now_s = lambda: spent_s + more_s
    assert math.isclose(before - spending.left_s(), more_s, abs_tol=1e-6)
