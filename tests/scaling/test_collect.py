import json
from pathlib import Path

import pytest

from x1_pretrain.errors import UserError
from x1_pretrain.scaling.collect import COLUMNS, collect
from x1_pretrain.scaling.replicates import Points
from x1_pretrain.scaling.runs import read_runs

EXAMPLE = Path(__file__).parents[2] / "schemas/examples/valid/sweep-run.tiny.json"


@pytest.fixture
def sweep(tmp_path: Path) -> list[Path]:
    run = json.loads(EXAMPLE.read_text())
    paths = []
    for model, factor in (("B", 2), ("A", 1)):
        path = tmp_path / f"{model}.json"
        path.write_text(json.dumps({**run, "model": model, "N": factor * run["N"]}))
        paths.append(path)
    return paths


def test_a_row_for_each_branch_in_the_given_order_of_models(sweep: list[Path], tmp_path: Path):
    output = tmp_path / "out/runs.csv"
    collect(sweep, output)
    lines = output.read_text().split("\n")
    assert lines[0] == ",".join(COLUMNS)
    assert [line.split(",")[0] for line in lines[1:-1]] == [
        f"{model}-seed0-b{branch}" for model in "BA" for branch in (0.125, 0.25, 0.5, 1.0)
    ]
    runs = read_runs(output)
    assert runs.branch.tolist() == [0.125, 0.25, 0.5, 1.0] * 2
    first = output.read_bytes()
    collect(sweep, output)
    assert output.read_bytes() == first


def test_further_seeds_are_rows_of_their_own(sweep: list[Path], tmp_path: Path):
    two = json.loads((EXAMPLE.parent / "sweep-run.two-seeds.json").read_text())
    sweep[1].write_text(json.dumps({**two, "model": "A"}))
    collect(sweep, tmp_path / "runs.csv")
    runs = read_runs(tmp_path / "runs.csv")
    assert len(runs) == 12 and runs.points == 8
    assert runs.run_id[4:] == tuple(
        f"A-seed{seed}-b{branch}" for seed in (0, 1) for branch in (0.125, 0.25, 0.5, 1.0)
    )
    assert Points.of(runs).degrees_of_freedom == 4


def test_numbers_survive_to_the_last_digit(sweep: list[Path], tmp_path: Path):
    collect(sweep, tmp_path / "runs.csv")
    losses = read_runs(tmp_path / "runs.csv").loss_nats.tolist()
    points = json.loads(EXAMPLE.read_text())["points"]
    assert losses == [point["val_loss_nats"] for point in points] * 2


def test_a_missing_key_a_missing_file_and_a_double_run_are_named(sweep: list[Path], tmp_path: Path):
    with pytest.raises(UserError, match="comes from two sweep files"):
        collect([sweep[0], sweep[0]], tmp_path / "runs.csv")
    with pytest.raises(UserError, match=r"C\.json: no such file"):
        collect([tmp_path / "C.json"], tmp_path / "runs.csv")
    sweep[0].write_text('{"model": "B", "seed": 0, "points": [{"branch": 1.0}]}')
    with pytest.raises(UserError, match=r"B\.json: not a sweep run, 'N' is missing"):
        collect(sweep, tmp_path / "runs.csv")
