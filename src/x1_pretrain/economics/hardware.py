"""What a GPU can do at best, so that MFU divides by a sourced number and never by a guess.

Unknown is `None` with a reason: a wrong peak (sparse, non-tensor, another form factor) is the most
common way to publish an MFU that is off by two. Device names are matched exactly, because a "4090
Laptop GPU" or a MIG slice contains the name of a card it is not.
"""

import math
import re
from dataclasses import dataclass

from x1_pretrain.errors import UserError


@dataclass(frozen=True)
class Figure:
    """A number with where it was read and when."""

    value: float
    source: str
    date: str


@dataclass(frozen=True)
class Gpu:
    """Peak dense bf16 FLOP/s with fp32 accumulation, memory in bytes (decimal GB), HBM bytes/s."""

    name: str
    names: tuple[str, ...]  # what torch.cuda.get_device_name says, and short names for a command line
    peak_bf16_flops: Figure | None
    memory_bytes: Figure | None
    bandwidth_bytes_per_s: Figure | None


@dataclass(frozen=True)
class Found:
    """The answer of a look-up: a GPU, or why there is none."""

    gpu: Gpu | None
    reason: str | None


_READ = "2026-11-30"
_TORCHTITAN = "torchtitan/tools/utils.py, dense, from {}"
_A100 = _TORCHTITAN.format("nvidia.com/data-center/a100")
_H100 = _TORCHTITAN.format("nvidia.com/data-center/h100")
_H200 = _TORCHTITAN.format("nvidia.com/data-center/h200")


def _peak(tflops: float, source: str) -> Figure:
    return Figure(tflops * 1e12, source, _READ)


def _memory(gigabytes: float, source: str = "the product's name or data sheet") -> Figure:
    return Figure(gigabytes * 1e9, source, _READ)


def _bandwidth(terabytes_per_s: float, source: str = "nanochat's hardware table") -> Figure:
    return Figure(terabytes_per_s * 1e12, source, _READ)


GPUS: tuple[Gpu, ...] = (
    Gpu(
        "A100 40GB",
        ("A100-SXM4-40GB", "A100-PCIE-40GB", "A100-40GB"),
        _peak(312, _A100),
        _memory(40),
        _bandwidth(1.555, "NVIDIA A100 data sheet, 40GB"),
    ),
    Gpu(
        "A100 80GB SXM",
        ("A100-SXM4-80GB", "A100-SXM-80GB", "A100-80GB", "A100"),
        _peak(312, _A100),
        _memory(80),
        _bandwidth(2.039, "NVIDIA A100 data sheet, 80GB SXM"),
    ),
    Gpu(
        "A100 80GB PCIe",
        ("A100 80GB PCIe", "A100-PCIE-80GB"),
        _peak(312, _A100),
        _memory(80),
        _bandwidth(2.0),
    ),
    Gpu(
        "H100 SXM",
        ("H100 80GB HBM3", "H100-SXM5-80GB", "H100 SXM", "H100"),
        _peak(989, _H100),
        _memory(80),
        _bandwidth(3.35),
    ),
    Gpu("H100 PCIe", ("H100 PCIe",), _peak(756, _H100), _memory(80), _bandwidth(2.0)),
    Gpu("H100 NVL", ("H100 NVL",), _peak(835, _H100), _memory(94), _bandwidth(3.9)),
    Gpu("H200 SXM", ("H200", "H200 SXM"), _peak(989, _H200), _memory(141), _bandwidth(4.8)),
    Gpu(
        "H200 NVL",
        ("H200 NVL",),
        _peak(836, "nanochat's hardware table"),
        _memory(141),
        _bandwidth(4.8),
    ),
    Gpu(
        "L40S",
        ("L40S",),
        _peak(362, "NVIDIA L40S data sheet, as in torchtitan and nanochat"),
        _memory(48),
        _bandwidth(0.864),
    ),
    Gpu(
        "RTX 4090",
        ("GeForce RTX 4090", "RTX 4090", "4090"),
        _peak(165.2, "NVIDIA Ada whitepaper, as in llm.c; 82.6 elsewhere is without tensor cores"),
        _memory(24),
        _bandwidth(1.01),
    ),
    Gpu(
        "RTX 5090",
        ("GeForce RTX 5090", "RTX 5090", "5090"),
        _peak(209.5, "nanochat's hardware table only; agrees with a quarter of 838 sparse fp16"),
        _memory(32),
        _bandwidth(1.79),
    ),
    Gpu(
        "B200",
        ("B200",),
        _peak(2250, "NVIDIA Blackwell data sheet, as in torchtitan"),
        None,  # 180 and 192 GB are both quoted
        _bandwidth(8.0),
    ),
)


def _normal(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return " ".join(word for word in words if word != "nvidia")


def find_gpu(name: str) -> Found:
    """The GPU of a torch device name ("NVIDIA A100-SXM4-80GB") or a short name ("a100-80gb")."""
    wanted = _normal(name)
    for gpu in GPUS:
        if wanted in {_normal(known) for known in (gpu.name, *gpu.names)}:
            return Found(gpu, None)
    known = ", ".join(gpu.name for gpu in GPUS)
    return Found(None, f"{name!r} is not in the hardware table, which has {known}")


def mfu(tokens_per_s: float, flops_per_token: float, peak_flops: float) -> float:
    """Model FLOPs utilisation: counted FLOPs done per second over the peak. Dimensionless, > 0.

    Raises `UserError` unless all three are positive and finite; a value above 1 is returned as it
    is, because it tells that the peak is wrong.
    """
    arguments = {
        "tokens_per_s": tokens_per_s,
        "flops_per_token": flops_per_token,
        "peak_flops": peak_flops,
    }
    for key, value in arguments.items():
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"{key}: {value} is not a positive number, so there is no MFU")
    return tokens_per_s * flops_per_token / peak_flops
