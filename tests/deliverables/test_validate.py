import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from x1_pretrain import paths
from x1_pretrain.deliverables import run_checks, validate
from x1_pretrain.deliverables.files import sha256_of, write_json
from x1_pretrain.deliverables.problems import InvalidDeliverablesError
from x1_pretrain.deliverables.registry import Deliverable
from x1_pretrain.deliverables.schemas import check_value

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / paths.SCHEMAS / "examples/valid"


def example(name: str) -> dict:
    return json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of two deliverables, and the two checks that look at nothing else."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / paths.SCHEMAS, paths.SCHEMAS)
    shutil.copytree(ROOT / paths.PROFILES, paths.PROFILES)
    shutil.copy(ROOT / paths.PARAMS, paths.PARAMS)
    write_json(paths.METRICS, example("metrics.tiny"))
    write_json(paths.MANIFEST, example("manifest.tiny"))
    entries = [(paths.METRICS, "metrics"), (paths.MANIFEST, "manifest")]
    listed = [(path, Deliverable(str(path), schema)) for path, schema in entries]
    monkeypatch.setattr(validate, "present", lambda root, measured=False: listed)
    checks = (run_checks.manifest_has_the_metrics, run_checks.checkpoint_is_the_manifests)
    monkeypatch.setattr(validate, "CHECKS", checks)
    return tmp_path


def test_the_outcome_names_what_was_checked(study: Path):
    outcome = validate.validate()
    assert check_value(outcome, "validation", "validation.json") == []
    assert outcome["checked"] == [
        {"file": path.as_posix(), "schema": schema, "sha256": sha256_of(path)}
        for path, schema in ((paths.METRICS, "metrics"), (paths.MANIFEST, "manifest"))
    ]
    assert outcome["cross_checks"] == [
        {"name": "manifest_has_the_metrics", "result": "passed"},
        {"name": "checkpoint_is_the_manifests", "result": "not present: skipped"},
    ]


def test_every_problem_of_every_file_is_reported(study: Path):
    write_json(paths.METRICS, {**example("metrics.tiny"), "steps": 0, "D": None})
    paths.MANIFEST.write_text("{")
    with pytest.raises(InvalidDeliverablesError) as error:
        validate.validate()
    assert [(p.file, p.path) for p in error.value.problems] == [
        (str(paths.METRICS), "$.D"),
        (str(paths.METRICS), "$.steps"),
        (str(paths.MANIFEST), "$"),
    ]
    assert str(error.value).startswith("3 problems in the deliverables\n")


def test_files_that_disagree_are_reported(study: Path):
    write_json(paths.METRICS, {**example("metrics.tiny"), "alarms": 3})
    with pytest.raises(InvalidDeliverablesError, match=r"manifest\.json: \$\.results\.alarms: is 0"):
        validate.validate()


def test_the_stage_writes_nothing_when_a_file_is_missing(tmp_path: Path):
    for path in (paths.SCHEMAS, paths.PROFILES):
        shutil.copytree(ROOT / path, tmp_path / path)
    shutil.copy(ROOT / paths.PARAMS, tmp_path / paths.PARAMS)
    stage = subprocess.run(
        [sys.executable, ROOT / "stages/validate.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert stage.returncode == 2
    assert f"{paths.MANIFEST}: $: no such file; the stage that makes it has not run" in stage.stderr
    assert f"{paths.FIT}: $: no such file" in stage.stderr
    assert not (tmp_path / paths.VALIDATION).exists()


def test_given_files_are_checked_alone(study: Path, capsys: pytest.CaptureFixture[str]):
    validate.main([str(paths.MANIFEST), str(paths.METRICS)])
    assert "2 deliverables fit" in capsys.readouterr().out
    write_json(paths.METRICS, {**example("metrics.tiny"), "grad_norm_max": -1})
    with pytest.raises(SystemExit) as exit_:
        validate.main([str(paths.METRICS)])
    assert exit_.value.code == 2
    assert f"{paths.METRICS}: $.grad_norm_max: -1 is out of range" in capsys.readouterr().err


def test_a_file_that_is_no_deliverable_is_refused(study: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        validate.main(["params.yaml"])
    assert "params.yaml: not a deliverable of a study" in capsys.readouterr().err


def test_the_command_names_a_stale_measured_file_and_the_outcome_does_not_depend_on_it(
    study: Path, capsys: pytest.CaptureFixture[str]
):
    before = validate.validate()
    write_json(paths.MEASURED / "train.json", {"run_id": "C-seed9"})
    assert validate.validate() == before
    with pytest.raises(SystemExit):
        validate.main([])
    assert "measured/train.json: $.run_id: is 'C-seed9', but" in capsys.readouterr().err
