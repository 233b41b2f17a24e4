import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError

UTC = "2026-11-30T12:00:00+00:00"


def work(path, name, seconds, price, *, ended=True, interval_s=10.0, run_id="run"):
    """One attempt of so many seconds."""
    ledger = Ledger(path)
    ledger.begin(name, "train", run_id, price, interval_s, 0.0, UTC)
    if ended:
        ledger.end(name, seconds, UTC, "finished")
    else:
        ledger.beat(name, seconds, UTC)


@settings(deadline=None)  # it writes and fsyncs
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 100), st.booleans()), max_size=8))
def test_total_is_the_sum_of_elapsed_times_price(tmp_path_factory, attempts):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    for n, (elapsed_s, price, ended) in enumerate(attempts):
        work(path, str(n), elapsed_s, price, ended=ended)
    expected = math.fsum((e + (0 if ended else 10)) * p / 3600 for e, p, ended in attempts)
    assert Ledger(path).total_usd() == pytest.approx(expected)


def test_an_attempt_without_an_end_is_charged_to_its_last_beat_and_one_interval(tmp_path):
    path = tmp_path / "ledger.jsonl"
    work(path, "a", 3590, 2.0, ended=False)
    assert Ledger(path).total_usd() == pytest.approx(2.0)
    assert [a.status for a in Ledger(path).attempts()] == [None]


def test_survives_a_new_process_and_tells_runs_apart(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    work(path, "1", 3600, 2.0, run_id="a")
    work(path, "2", 1800, 2.0, run_id="b")
    again = Ledger(path)
    assert (again.total_usd(), again.total_usd("a"), again.total_s("b")) == (3.0, 2.0, 1800)


def test_missing_file_is_nothing_spent(tmp_path):
    assert Ledger(tmp_path / "none.jsonl").total_usd() == 0


def test_an_attempts_time_never_goes_back(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.begin("a", "train", "run", 1.0, 10.0, 0.0, UTC)
    ledger.beat("a", 3600, UTC)
    ledger.end("a", 60, UTC, "finished")
    assert ledger.total_s() == 3600


@pytest.mark.parametrize("cut", [1, 2, 20, 60])
def test_torn_last_line_is_repaired_and_nothing_earlier_is_lost(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    work(path, "a", 3600, 1.0)
    work(path, "b", 3600, 1.0)
    path.write_bytes(path.read_bytes()[:-cut])
    b = 3600 if cut == 1 else 10  # only the newline lost: the line is whole. Else b has no end yet
    assert Ledger(path).total_s() == 3600 + b
    work(path, "c", 3600, 1.0)
    assert Ledger(path).total_s() == 2 * 3600 + b
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_torn_first_line_is_written_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    work(path, "a", 3600, 1.0)
    path.write_bytes(path.read_bytes()[:12])
    assert Ledger(path).total_usd() == 0
    work(path, "b", 3600, 1.0)
    assert Ledger(path).total_usd() == 1


def test_a_reader_that_saw_a_line_without_its_newline_reads_on(tmp_path):
    path = tmp_path / "ledger.jsonl"
    work(path, "a", 3600, 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    reader = Ledger(path)
    assert reader.total_usd() == 1
    with path.open("ab") as stream:
        stream.write(b"\n")
    work(path, "b", 3600, 1.0)
    assert reader.total_usd() == 2


def test_corrupt_middle_is_refused_with_its_line_number(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for name in "abc":
        work(path, name, 3600, 1.0)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], lines[3][5:], *lines[4:]]))
    before = path.read_bytes()
    with pytest.raises(UserError, match="line 4"):
        Ledger(path).total_usd()
    with pytest.raises(UserError, match="line 4"):
        Ledger(path).beat("a", 1, UTC)
    assert path.read_bytes() == before


BEGIN = {
    "attempt": "a",
    "event": "begin",
    "stage": "train",
    "run_id": "r",
    "price_usd_per_hour": 1.0,
    "interval_s": 10.0,
    "elapsed_s": 0.0,
    "utc": UTC,
}
END = {"attempt": "a", "event": "end", "elapsed_s": 3.0, "utc": UTC, "status": "finished"}


@pytest.mark.parametrize(
    "lines, number",
    [
        ([BEGIN | {"price_usd_per_hour": -1}], 2),
        ([BEGIN | {"price_usd_per_hour": math.nan}], 2),
        ([BEGIN | {"interval_s": True}], 2),
        ([BEGIN | {"run_id": 7}], 2),
        ([BEGIN | {"usd": 1}], 2),
        ([BEGIN, BEGIN], 3),  # copied
        ([END], 2),  # a line was taken out
        ([BEGIN, END | {"elapsed_s": -3.0}], 3),
        ([BEGIN, END | {"event": "stop"}], 3),
        ([17], 2),
    ],
)
def test_an_altered_line_is_refused_with_its_number(tmp_path, lines, number):
    path = tmp_path / "ledger.jsonl"
    header = {"ledger": 1, "project": "x1-pretrain"}
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *lines]))
    with pytest.raises(UserError, match=f"line {number}"):
        Ledger(path).attempts()


def test_the_ledger_of_another_project_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path, "mine").begin("a", "train", "run", 1.0, 10.0, 0.0, UTC)
    assert Ledger(path, "mine").total_s() == 10
    with pytest.raises(UserError, match="the ledger of project 'mine', not of 'yours'"):
        Ledger(path, "yours").total_usd()


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"run_id": "a", "elapsed_s": 1, "price_usd_per_hour": 1, "usd": 1}\n' * 2)
    with pytest.raises(UserError, match="line 1 does not say whose ledger"):
        Ledger(path).total_usd()


@pytest.mark.parametrize("price", [None, -1.0, math.nan])
def test_bad_price_writes_nothing(tmp_path, price):
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(UserError, match="price"):
        Ledger(path).begin("a", "train", "run", price, 10.0, 0.0, UTC)
    assert not path.exists()


def _charge_many(path, name):
    ledger = Ledger(path)
    for n in range(20):
        ledger.begin(f"{name}{n}", "train", name * 50, 1.0, 10.0, 0.0, UTC)
        ledger.end(f"{name}{n}", 36, UTC, "finished")


def test_two_processes_never_interleave(tmp_path):
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_charge_many, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(Ledger(path).attempts()) == 40
    assert Ledger(path).total_usd() == pytest.approx(0.4)


WORKER = """
import sys, time
from pathlib import Path
from x1_pretrain.economics.ledger import Ledger
ledger, name, began = Ledger(Path(sys.argv[1])), sys.argv[2], time.monotonic()
ledger.begin(name, "train", "run", 3600.0, 0.5, 0.0, "2026-11-30T12:00:00+00:00")
print("began", flush=True)
while True:
    ledger.beat(name, time.monotonic() - began, "2026-11-30T12:00:00+00:00")
    time.sleep(0.002)
"""


@pytest.mark.slow
def test_twenty_kills_lose_no_cent(tmp_path):
    """Killed while it writes as often as it can: every attempt is there, and charged for all of its time."""
    path, lived = tmp_path / "ledger.jsonl", 0.0
    for n in range(20):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(n)], stdout=subprocess.PIPE, env=os.environ
        )
        assert worker.stdout.readline() == b"began\n"
        began = time.monotonic()
        time.sleep(0.01 + 0.003 * n)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        lived += time.monotonic() - began
        worker.stdout.close()
    ledger = Ledger(path)
    assert len(ledger.attempts()) == 20
    assert lived <= ledger.total_s() + 1e-6
    assert ledger.total_s() <= lived + 20 * 0.6
