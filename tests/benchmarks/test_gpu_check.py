"""gpu_check.py without a GPU: the whole script at tiny sizes, and each check on the defect it is about."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import gpu_check
import pytest
import torch
from gpu_checks import attention_error, scale, speed
from gpu_checks.agreement import BF16, FP32, agreement, course
from gpu_checks.report import Findings, Report
from gpu_checks.trainee import reference_device

from x1_pretrain.attention import Window
from x1_pretrain.economics.flops import training_flops_per_token
from x1_pretrain.study import Choice, load_profile
from x1_pretrain.typed_yaml import build, read_yaml

ROOT = Path(__file__).parents[2]
CPU = reference_device(threads=1)

# What a machine with PyTorch alone does not have. A None in sys.modules makes `import` raise.
BARE = """
import runpy, sys
absent = "ruamel rich typer mlflow tiktoken safetensors scipy pandas datasets pyarrow zstandard dvc jinja2"
for name in f"{absent} matplotlib jsonschema torchao flash_attn".split():
    sys.modules[name] = None
sys.argv = ["gpu_check.py", "--cpu-selftest"]
runpy.run_path("benchmarks/gpu_check.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def selftest() -> subprocess.CompletedProcess[str]:
    """One run of the script on a bare machine."""
    return subprocess.run([sys.executable, "-c", BARE], cwd=ROOT, capture_output=True, text=True, timeout=250)


def test_the_script_runs_on_a_bare_machine(selftest: subprocess.CompletedProcess[str]) -> None:
    assert selftest.returncode == 0, selftest.stderr
    (line,) = selftest.stdout.splitlines()
    found = json.loads(line)
    parts = found["parts"]
    assert found["ok"] and not found["failed"]
    assert set(parts) == {line.split(":")[0] for line in selftest.stderr.splitlines()}
    ran = {name for name, part in parts.items() if part["status"] == "ok"}
    cases = [
        f"agreement {case} {precision}" for case in scale.SELFTEST.cases for precision in ("fp32", "bf16")
    ]
    speeds = [f"speed {m} sdpa{variant}" for m in scale.MODELS for variant in ("", " checkpointed")]
    assert ran == {"attention sdpa", "loss in chunks", "peaks", "repeat default", *cases, *speeds}
    assert all(part["reason"] for part in parts.values() if part["status"] == "skipped")


def test_mfu_is_counted_flops_over_the_measured_peak(selftest: subprocess.CompletedProcess[str]) -> None:
    parts, train = json.loads(selftest.stdout)["parts"], scale.SELFTEST.train
    for model, shape in scale.SELFTEST.models.items():
        part = parts[f"speed {model} sdpa"]
        sizes = (shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head, scale.SELFTEST.n_vocab)
        flops = training_flops_per_token(*sizes, train.seq_len)
        tokens_per_s = train.batch_tokens / part["step_s"]
        assert part["tokens_per_s"] == pytest.approx(tokens_per_s)
        share = tokens_per_s * flops / parts["peaks"]["measured_peak"]
        assert part["mfu_of_measured_peak"] == pytest.approx(share)
        assert part["mfu"] is None  # the table knows no CPU


def test_the_constants_are_the_profiles() -> None:
    a100, gpt2 = (load_profile(ROOT / f"experiments/profiles/{name}.yaml") for name in ("a100", "gpt2-124m"))
    assert {"X1": a100.models["X1"], "GPT-2 124M": gpt2.models["X1"]} == scale.MODELS
    for profile in (a100, gpt2):
        assert profile.device == scale.DEVICE and profile.train == scale.TRAIN
        assert profile.tokenizer.name == "gpt2"  # of N_VOCAB tokens
    params = ROOT / "params.yaml"
    assert build(Choice, read_yaml(params), str(params)).recipe == scale.DEFAULT


def test_without_a_gpu_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as left:
        gpu_check.main([])
    (line,) = capsys.readouterr().err.splitlines()
    assert left.value.code == 2 and "no GPU" in line and "--cpu-selftest" in line


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_budget_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        gpu_check.main(["--seconds", seconds, "--cpu-selftest"])
    assert left.value.code == 2 and f"--seconds {seconds}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("default", {"qk_norm": False}),
        ("everything", {"logit_softcap": None}),
        ("everything", {"z_loss": None}),  # the loss is the same, only its gradient is not
    ],
)
def test_a_device_that_computes_something_else_does_not_agree(name: str, defect: dict[str, object]) -> None:
    case = scale.SELFTEST.cases[name]
    reference = course(case, CPU, steps=3)
    assert not agreement(reference, course(case, CPU, 3, reference.weights), FP32).wrong
    recipe = dataclasses.replace(case.recipe, **defect)
    found = course(dataclasses.replace(case, recipe=recipe), CPU, 3, reference.weights)
    assert any("gradient" in wrong for wrong in agreement(reference, found, FP32).wrong)


def test_a_window_of_one_key_more_does_not_agree() -> None:
    case = scale.SELFTEST.cases["everything"]
    reference = course(case, CPU, steps=3)
    found = course(dataclasses.replace(case, window=case.window + 1), CPU, 3, reference.weights)
    for tolerance in (FP32, BF16):
        assert agreement(reference, found, tolerance).wrong


@pytest.mark.parametrize("off_by", [-1, 1])
def test_an_attention_library_with_another_window_is_found(
    off_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(Window):
        def set(self, window: int | None) -> None:
            super().set(None if window is None else window + off_by)

    sizes = scale.SELFTEST.attention_sizes
    assert not attention_error.attention_error("sdpa", sizes, "cpu").wrong
    monkeypatch.setattr(attention_error, "Window", Other)
    wrong = attention_error.attention_error("sdpa", sizes, "cpu").wrong
    assert {words.split()[0] for words in wrong} == {"float32_window", "bfloat16_window"}


def test_key_heads_in_another_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = attention_error.attend
    monkeypatch.setattr(
        attention_error, "attend", lambda q, k, v, *rest: attend(q, k.flip(2), v.flip(2), *rest)
    )
    wrong = attention_error.attention_error("sdpa", scale.SELFTEST.attention_sizes, "cpu").wrong
    assert len(wrong) == 4


def test_a_meter_that_measures_a_tenth_of_the_peak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "matmul_peak", lambda *_: 1e12)
    monkeypatch.setattr(speed.meters, "measured_peak", lambda used: 1e11)
    assert speed.peaks(CPU, 64, (8, 8, 97), (0.8, 1.25)).wrong == ("meter_ratio 0.1 is below 0.8",)


def test_the_micro_batch_halves_until_a_step_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits_two(case: scale.Case, *_: object) -> dict[str, object]:
        if case.train.micro_batch > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"batch_sequences": case.train.batch_sequences}

    monkeypatch.setattr(speed, "_speed", fits_two)
    case = scale.SELFTEST.cases["default"]
    case = dataclasses.replace(case, train=dataclasses.replace(case.train, micro_batch=8))
    found = speed.speed(case, CPU, 1, lambda: 1.0, None).measured
    assert found == {"micro_batch": 2, "out_of_memory_at": [8, 4], "batch_sequences": 8}


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("at one sequence"), RuntimeError("an illegal access")]
)
def test_what_a_smaller_micro_batch_cannot_mend_is_raised(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(speed, "_speed", fails)
    with pytest.raises(RuntimeError, match=str(error)):
        speed.speed(scale.SELFTEST.cases["default"], CPU, 1, lambda: 1.0, None)


def test_a_part_that_fails_or_finds_something_wrong_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def breaks() -> Findings:
        raise RuntimeError("no kernel")

    report = report_of(seconds=100)
    report.part("a", "one", breaks)
    report.part("a", "two", lambda: Findings.of({"error": float("nan")}, {"error": 0.1}))
    report.part("a", "three", lambda: Findings({"x": 1}))
    assert report.finish() == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["failed"]) == (False, ["a one", "a two"])
    assert found["parts"]["a one"]["reason"] == "RuntimeError: no kernel"
    assert found["parts"]["a two"]["error"] is None and found["parts"]["a three"]["status"] == "ok"


def test_no_part_begins_without_the_time_for_the_longest_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("gpu_checks.report.time.monotonic", lambda: now[0])
    began: list[str] = []

    def work(name: str, takes_s: float) -> Findings:
        began.append(name)
        now[0] += takes_s
        return Findings({})

    report = report_of(seconds=100)
    report.part("a", "first", lambda: work("first", 45.0))  # it was thought to take 10 s
    report.part("a", "fits", lambda: work("fits", 15.0))
    report.part("a", "does not", lambda: work("does not", 1.0))  # 40 s are left for one of 45 s
    report.part("b", "of another kind", lambda: work("b", 1.0))
    assert began == ["first", "fits", "b"]
    assert report.parts["a does not"] == {"status": "skipped", "reason": "no time: 40 s are left of 100"}
    assert report.finish() == 0


HANGING = """
import ctypes, sys, time
sys.path.insert(0, "benchmarks")
from gpu_checks import report
report.OVERRUN_S, report.STUCK_S = 0.2, 0.3
checks = report.Report(0.1, time.monotonic(), {{}}, {{"a": 0.0}})
checks.watch()
checks.part("a", "done", lambda: report.Findings({{"x": 1}}))
checks.part("a", "hangs", lambda: {hang})
"""


def hanging(hang: str) -> subprocess.CompletedProcess[str]:
    code = HANGING.format(hang=hang)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)


def test_a_part_that_hangs_ends_the_process_with_the_line_of_results() -> None:
    left = hanging("time.sleep(25)")
    found = json.loads(left.stdout)
    assert left.returncode == 1 and not found["ok"]
    assert found["parts"]["a done"]["status"] == "ok"
    assert (
        found["parts"]["a hangs"]["status"] == "failed" and "not done" in found["parts"]["a hangs"]["reason"]
    )


def test_a_part_that_never_gives_python_back_ends_the_process_too() -> None:
    left = hanging("ctypes.PyDLL(None).sleep(25)")  # holds the interpreter's lock
    assert left.returncode == 1 and "Timeout" in left.stderr


def report_of(seconds: float) -> Report:
    return Report(seconds, started=gpu_check.time.monotonic(), header={}, needs_s={"a": 10.0, "b": 10.0})
