"""utilisation.py and loader.py: ratios of what was measured, with everything slow replaced."""

import json
from pathlib import Path
from types import SimpleNamespace

import loader
import pytest
import timing
import utilisation

from x1_pretrain.corpus.loader import Tokens, TrainLoader
from x1_pretrain.run_spec import spec_of
from x1_pretrain.study import study_from


def test_utilisation_is_counted_flops_over_the_best_peak_of_the_run(
    synthetic_tokens: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peaks = iter([1e9, 4e9, 2e9])
    monkeypatch.setattr(utilisation, "measured_peak", lambda used: next(peaks))
    monkeypatch.setattr(utilisation, "step_seconds", lambda *_: 0.5)
    utilisation.main(["--config", "smoke", "--models", "A,C", "--tokens", str(synthetic_tokens)])
    found = json.loads(capsys.readouterr().out)
    study = study_from("smoke")
    for model in ("A", "C"):
        spec = spec_of(study, model, "x", "x")
        flops = spec.flops(257, spec.schedule.total_steps - 1, spec.schedule.total_steps)
        assert found["ratio"][model] == pytest.approx(flops / 0.5 / 4e9)
    assert found["measured_peaks"] == [1e9, 4e9, 2e9]


def test_the_loaders_ratio_is_above_one_when_it_is_faster_than_training(
    synthetic_tokens: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loader, "loading_seconds", lambda *_: 0.01)
    monkeypatch.setattr(loader, "step_seconds", lambda *_: 0.5)
    loader.main(["--config", "smoke", "--model", "B", "--tokens", str(synthetic_tokens)])
    found = json.loads(capsys.readouterr().out)
    assert found["ratio"] == pytest.approx(50)
    assert found["loader_tokens_per_s"] / found["training_tokens_per_s"] == pytest.approx(50)


def test_an_unknown_model_is_one_line_and_status_2(
    synthetic_tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        utilisation.main(["--config", "smoke", "--models", "A,Z", "--tokens", str(synthetic_tokens)])
    assert left.value.code == 2 and "'Z'" in capsys.readouterr().err


def test_the_first_steps_are_not_timed_and_one_slow_step_is_not_the_answer(
    synthetic_tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(timing, "TorchTrainer", lambda *_: SimpleNamespace(step=lambda *_: steps.append(1)))
    clock = iter([0.0, 0.1, 0.0, 9.0, 0.0, 0.1])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    small = TrainLoader(Tokens(synthetic_tokens), 32, 4, 0)
    assert timing.step_seconds(study_from("smoke"), "A", small, None, 3) == pytest.approx(0.1)
    assert len(steps) == timing.WARM_STEPS + 3
