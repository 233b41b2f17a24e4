"""A measured file that is left of another run is named; DVC would not notice it."""

from pathlib import Path

import pytest

from x1_pretrain import paths
from x1_pretrain.deliverables.files import write_json, write_text
from x1_pretrain.deliverables.measured_checks import measured_problems

TRAIN, SWEEP = paths.MEASURED / "train.json", paths.MEASURED / "sweep-A.json"
SPIKE, INFERENCE = paths.MEASURED / "spike.json", paths.MEASURED / "inference.json"


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliverables and measured files of the same runs, as far as the checks read them."""
    monkeypatch.chdir(tmp_path)
    write_json(paths.MANIFEST, {"run_id": "X1-seed0", "fingerprint": "a" * 64})
    write_json(paths.SWEEP_RUNS / "A.json", {"run_id": "A-seed0"})
    write_json(paths.SPIKE, {"run": {"run_id": "spike-A-seed0"}})
    write_json(paths.INFERENCE, {"model": "X1"})
    write_json(TRAIN, {"run_id": "X1-seed0", "fingerprint": "a" * 64})
    write_json(SWEEP, {"run_id": "A-seed0", "fingerprint": "b" * 64})
    write_json(SPIKE, {"run_id": "spike-A-seed0"})
    write_json(INFERENCE, {"model": "X1"})


def lines() -> list[str]:
    return [str(problem) for problem in measured_problems()]


def test_files_of_the_study_pass():
    assert lines() == []


def test_a_study_without_measured_files_passes():
    for path in (TRAIN, SWEEP, SPIKE, INFERENCE):
        path.unlink()
    assert lines() == []
    paths.MEASURED.rmdir()
    assert lines() == []


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (TRAIN, "run_id", "C-seed0"),
        (TRAIN, "run_id", "X1-seed1"),
        (SWEEP, "run_id", "A-seed1"),
        (SPIKE, "run_id", "spike-B-seed0"),
        (INFERENCE, "model", "C"),
    ],
)
def test_a_stale_file_is_named_with_both_runs(path: Path, key: str, value: str):
    write_json(path, {key: value})
    (line,) = lines()
    assert line.startswith(f"{path}: $.{key}: is {value!r}, but experiments/")


def test_a_file_of_another_run_with_the_same_id_is_named():
    """As after DVC restored an earlier run from its run-cache: the last one trained was measured."""
    write_json(TRAIN, {"run_id": "X1-seed0", "fingerprint": "c" * 64})
    (line,) = lines()
    assert line.startswith(f"{TRAIN}: $.fingerprint: is 'ccc")
    assert "was measured in another run; restore it from Git, or remove it" in line


def test_a_file_of_another_run_is_named_once():
    write_json(TRAIN, {"run_id": "C-seed0", "fingerprint": "c" * 64})
    (line,) = lines()
    assert "$.run_id: is 'C-seed0'" in line


def test_a_sweep_file_has_the_fingerprint_of_its_run_where_that_has_one():
    write_json(paths.SWEEP_RUNS / "A.json", {"run_id": "A-seed0", "fingerprint": "d" * 64})
    (line,) = lines()
    assert line.startswith(f"{SWEEP}: $.fingerprint: is 'bbb")


def test_a_sweep_file_of_a_model_that_was_not_swept_is_named():
    write_json(paths.MEASURED / "sweep-D.json", {"run_id": "D-seed0"})
    (line,) = lines()
    assert "sweep-D.json: $: belongs to" in line
    assert "runs/D.json, which is not here" in line


def test_a_file_that_no_stage_writes_is_named():
    write_json(paths.MEASURED / "train-old.json", {"run_id": "X1-seed0"})
    assert lines() == [f"{paths.MEASURED}/train-old.json: $: no stage writes this file; remove it"]


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_what_fits_no_schema_is_left_to_the_schemas(content: str):
    write_text(TRAIN, content)
    write_text(paths.SPIKE, content)
    assert lines() == []
