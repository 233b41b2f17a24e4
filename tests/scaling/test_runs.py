from pathlib import Path

import numpy as np
import pytest

from x1_pretrain.errors import UserError
from x1_pretrain.scaling.runs import read_runs

HEADER = "run_id,N,D,val_loss"
GOOD = ["A,5e6,4.5e9,4.65", "B,25e6,0.9e9,4.21", "C,100e6,0.225e9,4.35"]


def write(folder: Path, rows: list[str], header: str = HEADER) -> Path:
    path = folder / "runs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_the_minimal_columns_are_enough(tmp_path: Path):
    runs = read_runs(write(tmp_path, GOOD))
    assert runs.run_id == ("A", "B", "C")
    assert runs.C.tolist() == pytest.approx([1.35e17] * 3)
    assert runs.branch is None and runs.usd_spent is None
    with pytest.raises(ValueError):
        runs.N[0] = 1.0


@pytest.mark.parametrize("dollars", ["usd_spent", "dollars_spent"])
def test_dollars_are_read_under_either_name_and_other_columns_are_ignored(tmp_path: Path, dollars: str):
    rows = [f"{row},0.7,note" for row in GOOD]
    runs = read_runs(write(tmp_path, rows, f"{HEADER},{dollars},comment"))
    assert runs.usd_spent.tolist() == [0.7] * 3


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["A,5e6,4.5e9,nan", *GOOD[1:]], "'A' has val_loss nan; leave a run"),
        (["A,5e6,4.5e9,-1", *GOOD[1:]], "'A' has val_loss -1; it is nats per token, above 0"),
        (["A,5e6,4.5e9,0", *GOOD[1:]], "val_loss 0;"),
        (["A,5e6,4.5e9,low", *GOOD[1:]], "val_loss 'low', which is not a number"),
        (["A,-5e6,4.5e9,4.6", *GOOD[1:]], "has N -5e6; it is a count, above 0"),
        (["A,5e6,0,4.6", *GOOD[1:]], "has D 0; it is a count"),
        (["A,5e6,4.5,4.6", *GOOD[1:]], "D 4.5, which looks like millions or billions; write raw counts"),
        (["A,5,4.5e9,4.6", *GOOD[1:]], "N 5, which looks like millions or billions"),
        (["A,5e9,4500,4.6", *GOOD[1:]], "tokens per parameter; D is probably in thousands or millions"),
        (["A,5e6,4.5e18,4.6", *GOOD[1:]], "D was multiplied twice; both are raw counts"),
        (["A,5e6,4.5e9,104.2", *GOOD[1:]], "if it is a perplexity, write its natural logarithm"),
        ([GOOD[0], GOOD[1], GOOD[2], GOOD[1]], "run_id 'B' stands 2 times"),
        (GOOD[:2], "2 distinct (N, D) in 2 rows; a law needs at least 3"),
        (["A,5e6,4.5e9,4.6", "B,5e6,4.5e9,4.6", "C,5e6,4.5e9,4.6"], "1 distinct (N, D) in 3 rows"),
        ([], "no rows below the header"),
        (["A,5e6,4.5e9", *GOOD[1:]], "line 2 does not have the 4 values"),
    ],
)
def test_each_bad_table_has_its_own_sentence(tmp_path: Path, rows: list[str], says: str):
    with pytest.raises(UserError) as caught:
        read_runs(write(tmp_path, rows))
    assert says in str(caught.value) and "runs.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_seeds_and_other_columns_are_read_where_present(tmp_path: Path):
    rows = [f"{row},m{i},1e7,2e17" for i, row in enumerate([*GOOD, "D" + GOOD[0][1:]])]
    runs = read_runs(write(tmp_path, rows, f"{HEADER},model,N_total,C_counted"))
    assert runs.model == ("m0", "m1", "m2", "m3") and runs.points == 3
    assert runs.N_total.tolist() == [1e7] * 4 and runs.C_counted.tolist() == [2e17] * 4
    kept = runs.take(np.array([True, False, True, False]))
    assert kept.run_id == ("A", "C") and kept.model == ("m0", "m2") and len(kept.N_total) == 2
    assert kept.branch is None and kept.with_sizes(kept.N_total).N.tolist() == [1e7] * 2


def test_a_missing_column_and_a_missing_file_are_named(tmp_path: Path):
    with pytest.raises(UserError, match="the column 'val_loss' is missing among run_id, N, D, loss"):
        read_runs(write(tmp_path, GOOD, "run_id,N,D,loss"))
    with pytest.raises(UserError, match=r"absent\.csv: no such file"):
        read_runs(tmp_path / "absent.csv")


def test_runs_of_one_budget_are_grouped_though_steps_are_whole(tiny_runs):
    runs = tiny_runs()
    groups = runs.budgets()
    assert [len(group) for group in groups] == [3, 3, 3, 3]
    assert all(np.ptp(np.log(runs.C[group])) < 0.05 for group in groups)
    assert np.all(np.diff([runs.C[group].mean() for group in groups]) > 0)
