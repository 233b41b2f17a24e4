"""stages/sweep.py with the training replaced: which seeds, in which order, and what is handed over."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from x1_pretrain import paths

ROOT = Path(__file__).parent.parent


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the stage for model B with so many seeds; returns the (seed, output) trained, and B.json."""
    shutil.copytree(ROOT / paths.PROFILES, tmp_path / paths.PROFILES)
    params = (ROOT / paths.PARAMS).read_text()
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("sweep_stage", ROOT / "stages/sweep.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    trained: list[tuple[int, str]] = []

    def train(spec, tokens, uri, experiment, deliver, since_s):
        trained.append((spec.seed, spec.output))
        assert (since_s is None) == (len(trained) > 1), "the start of the process is charged once"
        deliver(SimpleNamespace(run_id=spec.run_id, seed=spec.seed))

    monkeypatch.setattr(module, "train", train)
    monkeypatch.setattr(
        module.record,
        "sweep_run",
        lambda run: {"run_id": run.run_id, "model": "B", "seed": run.seed, "points": [{"branch": 1.0}]},
    )
    for name in ("write_run", "write_measured"):
        monkeypatch.setattr(module.record, name, lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["sweep.py", "B"])

    def run(seeds: int):
        Path(paths.PARAMS).write_text(params.replace("  seeds: 1 ", f"  seeds: {seeds} "))
        module.main()
        return trained, json.loads((paths.SWEEP_RUNS / "B.json").read_text())

    return run


def test_one_seed_is_the_studys_own(stage):
    trained, content = stage(1)
    assert trained == [(0, "sweep-B")]
    assert content["seed"] == 0 and content["replicates"] == []


def test_further_seeds_come_first_and_are_handed_over_together(stage):
    trained, content = stage(3)
    assert trained == [(1, "sweep-B-seed1"), (2, "sweep-B-seed2"), (0, "sweep-B")]
    assert [run["run_id"] for run in content["replicates"]] == ["B-seed1", "B-seed2"]
    assert content["run_id"] == "B-seed0" and "model" not in content["replicates"][0]
