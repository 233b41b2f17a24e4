"""Does training on this GPU compute what it should, and how fast? One JSON line, in less than six minutes.

    python benchmarks/gpu_check.py

Needs a clone of the project, PyTorch 2.11 or later with CUDA, and no other package. Exit status 1 if a check
fails, 2 if there is no GPU. A part that there is no time for is reported as skipped. Progress is on stderr.
"""

import argparse
import math
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

STARTED = time.monotonic()  # importing torch counts too
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]  # nothing is installed on a bare machine

import torch  # noqa: E402
from gpu_checks.agreement import BF16, FP32, Course, Tolerance, agreement, course, repeatability  # noqa: E402
from gpu_checks.attention_error import attention_error  # noqa: E402
from gpu_checks.loss_error import loss_error  # noqa: E402
from gpu_checks.report import Findings, Report  # noqa: E402
from gpu_checks.scale import DEFAULT, ON_GPU, SELFTEST, Case, Scale  # noqa: E402
from gpu_checks.speed import peaks, speed  # noqa: E402
from gpu_checks.trainee import reference_device  # noqa: E402

from x1_pretrain.attention import available  # noqa: E402
from x1_pretrain.config import Device, as_dict  # noqa: E402
from x1_pretrain.determinism import cpu_name  # noqa: E402
from x1_pretrain.errors import UserError, exit_on_user_error  # noqa: E402

# Seconds that the first part of a kind may take, compilation included: guesses until one was measured.
NEEDS_S = {"attention": 20.0, "loss": 20.0, "agreement": 30.0, "repeat": 20.0, "peaks": 5.0, "speed": 60.0}


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="no part begins that may end later")
    parser.add_argument("--cpu-selftest", action="store_true", help="tiny sizes on the CPU: tests the script")
    options = parser.parse_args(argv)
    if not 0 < options.seconds < math.inf:
        raise UserError(f"--seconds {options.seconds:g}: must be a finite number above 0")
    scale = SELFTEST if options.cpu_selftest else ON_GPU
    if scale.device.kind == "cuda" and not torch.cuda.is_available():
        raise UserError("torch sees no GPU here; --cpu-selftest runs the same code at tiny sizes on the CPU")
    header = {
        "benchmark": "gpu_check",
        "selftest": options.cpu_selftest,
        "device": cpu_name() if options.cpu_selftest else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),  # "highest": no TF32
        "timed": as_dict(scale.train),
    }
    report = Report(options.seconds, STARTED, header, NEEDS_S)
    report.watch()
    check(report, scale)
    sys.exit(report.finish())


def check(report: Report, scale: Scale) -> None:
    """All parts, what matters most first: correctness, MFU of both models, then the variants."""
    device = scale.device
    sdpa = replace(device, attention="sdpa")
    eager_fp32 = replace(sdpa, precision="fp32", compile=False)
    cpu = reference_device(min(device.threads, os.cpu_count() or 1))
    missing = {library: available(library) for library in ("sdpa", "flash", "flex")}
    references: dict[str, Course] = {}

    def compare(name: str, on: Device, tolerance: Tolerance) -> Findings:
        if name not in references:
            references[name] = course(scale.cases[name], cpu, scale.steps)
        reference = references[name]
        found = course(scale.cases[name], on, scale.steps, reference.weights)
        return agreement(reference, found, tolerance)

    def train(model: str, on: Device) -> Findings:
        case = Case(scale.models[model], DEFAULT, scale.train, scale.n_vocab)
        peak = report.parts.get("peaks", {}).get("measured_peak")
        return speed(case, on, scale.timed_steps, report.left_s, peak)

    for library, reason in missing.items():
        error = partial(attention_error, library, scale.attention_sizes, device.kind)
        report.part("attention", library, error, unless=reason)
    report.part("loss", "in chunks", partial(loss_error, device, scale.loss_sizes))
    for name in scale.cases:
        report.part("agreement", f"{name} fp32", partial(compare, name, eager_fp32, FP32))
        report.part("agreement", f"{name} {device.precision}", partial(compare, name, sdpa, BF16))
    report.part("peaks", "", partial(peaks, sdpa, scale.peak_size, scale.head_sizes, scale.meter_band))
    for model in scale.models:
        report.part("speed", f"{model} sdpa", partial(train, model, sdpa))
    report.part("repeat", "default", partial(repeatability, scale.cases["default"], sdpa, scale.steps // 2))
    checkpointed = replace(sdpa, gradient_checkpointing=True)
    for model in scale.models:
        for library in ("flash", "flex"):
            on = replace(device, attention=library)
            report.part("speed", f"{model} {library}", partial(train, model, on), unless=missing[library])
        report.part("speed", f"{model} sdpa checkpointed", partial(train, model, checkpointed))
    for library in ("flash", "flex"):
        on = replace(device, attention=library)
        run = partial(compare, "everything", on, BF16)
        report.part("agreement", f"everything {device.precision} {library}", run, unless=missing[library])


if __name__ == "__main__":
    main()
