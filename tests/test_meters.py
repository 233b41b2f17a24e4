"""MFU divides by a peak that is of the run's own precision, and says which."""

import dataclasses

import pytest

from x1_pretrain import meters
from x1_pretrain.determinism import Used
from x1_pretrain.economics.hardware import find_gpu

CPU = Used(
    device="cpu",
    name="a CPU (AVX2)",
    threads=1,
    precision_requested="fp32",
    precision_used="fp32",
    compile_requested=False,
    compile_used=False,
    attention_requested="sdpa",
    attention_used="sdpa",
    deterministic=True,
)
GPU = dataclasses.replace(CPU, device="cuda", name="NVIDIA A100-SXM4-80GB", precision_used="bf16")


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> float:
    """A peak as if it were measured on this machine, which has no GPU."""
    monkeypatch.setattr(meters, "measured_peak", lambda used: 7e12)
    return 7e12


def test_a_cpu_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meters, "PEAK_SECONDS", 0.02)
    peak = meters.peak(CPU)
    assert peak.measured and 1e8 < peak.flops_per_s < 1e15
    assert peak.reason == "against the fp32 matmul peak measured here, not a data sheet"


def test_bf16_on_a_known_gpu_is_compared_with_its_data_sheet():
    peak = meters.peak(GPU)
    assert peak.flops_per_s == find_gpu(GPU.name).gpu.peak_bf16_flops.value == 312e12
    assert (peak.measured, peak.reason) == (False, "peak of A100 80GB SXM")


def test_fp32_on_a_known_gpu_is_not_divided_by_its_bf16_peak(measuring: float):
    peak = meters.peak(dataclasses.replace(GPU, precision_used="fp32"))
    assert (peak.measured, peak.flops_per_s) == (True, measuring)
    assert "fp32 matmul peak measured here" in peak.reason
    assert "the known peak of A100 80GB SXM is for bf16" in peak.reason


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_unknown_gpu_is_measured_in_the_runs_precision(measuring: float, precision: str):
    unknown = dataclasses.replace(GPU, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb", precision_used=precision)
    peak = meters.peak(unknown)
    assert (peak.measured, peak.flops_per_s) == (True, measuring)
    assert peak.reason == f"against the {precision} matmul peak measured here, not a data sheet"


def test_a_cpu_named_like_a_gpu_is_measured(measuring: float):
    assert meters.peak(dataclasses.replace(CPU, name="H100", precision_used="bf16")).measured


def test_utilisation_is_counted_flops_over_the_peak():
    work = {"tokens": 4000, "flops": 2 * 10**12, "seconds": 4.0}
    sheet = meters.utilisation(meters.Peak(1e12, "peak of X", measured=False), **work)
    assert sheet == meters.Utilisation(1000.0, 0.5, "peak of X", None)
    here = meters.utilisation(meters.Peak(1e12, "measured", measured=True), **work)
    assert here == meters.Utilisation(1000.0, 0.5, "measured", 1e12)


@pytest.mark.parametrize(("measured", "kept"), [(True, 1e12), (False, None)])
def test_without_a_timed_step_there_is_no_speed_and_no_mfu_but_a_reason(measured: bool, kept: float | None):
    found = meters.utilisation(meters.Peak(1e12, "why", measured), tokens=0, flops=0, seconds=0.0)
    assert found.tokens_per_s is None and found.mfu is None
    assert "no step after the first was timed" in found.mfu_reason
    assert found.measured_peak_flops == kept
