"""The one place that sets seeds, threads and flags, and that says what was asked for and what is used.

Measured on CPU: eager fp32 is bit-stable; `torch.compile` is bit-stable only under
`use_deterministic_algorithms(True)` and for a fixed number of threads. On CUDA upstream promises no such
thing for compiled or flash kernels; there the claim is a tolerance.
"""

import os
import platform
import re
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch

from x1_pretrain import attention
from x1_pretrain.config import Device
from x1_pretrain.errors import UserError
from x1_pretrain.paths import project_root


@dataclass(frozen=True)
class Used:
    """What a run really computes with, beside what the profile requested."""

    device: str
    name: str
    threads: int
    precision_requested: str
    precision_used: str
    compile_requested: bool
    compile_used: bool
    attention_requested: str
    attention_used: str
    deterministic: bool

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision_used == "bf16" else torch.float32

    def autocast(self) -> torch.autocast:
        """bf16 autocast, or a context that does nothing for fp32."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision_used == "bf16")


def setup(device: Device, seed: int) -> Used:
    """Seed and pin everything; fall back where the machine lacks something, and say so on stderr.

    Raises `UserError` if CUDA is asked for and absent.
    """
    if device.kind == "cuda" and not torch.cuda.is_available():
        raise UserError("device.kind: cuda was asked for but torch sees no GPU; use a profile with kind: cpu")
    # Graphs are compiled once and shared by all stages; the place must be absolute and set early.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(project_root() / ".cache/inductor"))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(device.threads)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    compiles = device.compile and (device.kind == "cuda" or cpp_compiler() is not None)
    precision = device.precision
    if device.compile and not compiles:
        precision = "fp32" if device.kind == "cpu" else precision
        print(
            "no C++ compiler (g++ or clang++, with Python's headers) was found: training runs uncompiled in "
            "fp32, slower and with other bits than the committed results",
            file=sys.stderr,
        )
    return Used(
        device=device.kind,
        name=torch.cuda.get_device_name() if device.kind == "cuda" else cpu_name(),
        threads=device.threads,
        precision_requested=device.precision,
        precision_used=precision,
        compile_requested=device.compile,
        compile_used=compiles,
        attention_requested=device.attention,
        attention_used=attention_backend(device, precision, compiles),
        deterministic=device.kind == "cpu",
    )


def attention_backend(device: Device, precision: str, compiles: bool) -> str:
    """What `device.attention` comes to. Raises `UserError` where what was asked for by name is not there."""
    if device.attention == "auto":
        flash = device.kind == "cuda" and precision == "bf16" and attention.available("flash") is None
        return "flash" if flash else "sdpa"
    why = attention.available(device.attention)
    if device.attention == "flash" and why is None and (device.kind != "cuda" or precision != "bf16"):
        why = f"it computes in bf16 on a GPU, this run in {precision} on {device.kind}"
    if device.attention == "flex" and why is None and (device.kind != "cuda" or not compiles):
        why = (
            f"it trains compiled on a GPU, this run is {'' if compiles else 'not '}compiled on {device.kind}"
        )
    if why is not None:
        raise UserError(f"device.attention: {device.attention} cannot be used: {why}; use auto or sdpa")
    return device.attention


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would use on CPU, or None; it needs Python's headers too."""
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return None
    for candidate in (os.environ.get("CXX"), "g++", "clang++"):
        if candidate and shutil.which(candidate):
            return candidate
    return None


def cpu_name() -> str:
    """The kind of CPU, vector width included: equal bits are promised on one kind only."""
    info = Path("/proc/cpuinfo")
    model = platform.processor() or platform.machine()
    if info.is_file() and (match := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        model = match.group(1).strip()
    return f"{model} ({torch.backends.cpu.get_cpu_capability()})"
