import json
import math
import multiprocessing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 100)), max_size=8))
def test_total_is_the_sum_of_elapsed_times_price(tmp_path_factory, charges):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    for elapsed_s, price in charges:
        Ledger(path).charge("run", elapsed_s, price)
    assert Ledger(path).total_usd() == pytest.approx(math.fsum(e * p / 3600 for e, p in charges))


def test_survives_a_new_process_and_tells_runs_apart(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    Ledger(path).charge("a", 3600, 2.0)
    Ledger(path).charge("b", 1800, 2.0)
    again = Ledger(path)
    assert (again.total_usd(), again.total_usd("a"), again.total_s("b")) == (3.0, 2.0, 1800)


def test_missing_file_is_nothing_spent(tmp_path):
    assert Ledger(tmp_path / "none.jsonl").total_usd() == 0


@pytest.mark.parametrize("cut", range(1, 30, 7))
def test_torn_last_line_is_repaired_and_no_earlier_charge_lost(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    for run_id in ("a", "b"):
        Ledger(path).charge(run_id, 3600, 1.0)
    path.write_bytes(path.read_bytes()[:-cut])
    survived = 2.0 if cut == 1 else 1.0  # only the newline lost: the charge is whole
    assert Ledger(path).total_usd() == survived
    Ledger(path).charge("c", 3600, 1.0)
    assert Ledger(path).total_usd() == survived + 1
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_corrupt_middle_is_refused_with_its_line_number(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for run_id in ("a", "b", "c"):
        Ledger(path).charge(run_id, 3600, 1.0)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][5:] + lines[2])
    before = path.read_bytes()
    with pytest.raises(UserError, match="line 2"):
        Ledger(path).total_usd()
    with pytest.raises(UserError, match="line 2"):
        Ledger(path).charge("d", 1, 1.0)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        '{"run_id": "a", "elapsed_s": 1, "price_usd_per_hour": 1, "usd": NaN}',
        '{"run_id": "a", "elapsed_s": 1, "price_usd_per_hour": 1, "usd": -1}',
        '{"run_id": "a", "elapsed_s": true, "price_usd_per_hour": 1, "usd": 1}',
        '{"run_id": 7, "elapsed_s": 1, "price_usd_per_hour": 1, "usd": 1}',
        '{"run_id": "a", "usd": 1}',
        "17",
    ],
)
def test_altered_charge_is_refused(tmp_path, line):
    path = tmp_path / "ledger.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match="line 1"):
        Ledger(path).entries()


@pytest.mark.parametrize("price", [None, -1.0, math.nan])
def test_bad_price_writes_nothing(tmp_path, price):
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(UserError, match="price"):
        Ledger(path).charge("a", 1.0, price)
    assert not path.exists()


def _charge_many(path, run_id):
    for _ in range(40):
        Ledger(path).charge(run_id, 36, 1.0)


def test_two_processes_never_interleave(tmp_path):
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_charge_many, args=(path, name * 50)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(Ledger(path).entries()) == 80
    assert Ledger(path).total_usd() == pytest.approx(0.8)
