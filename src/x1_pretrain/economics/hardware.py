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
    """Peak dense bf16 FLOP/s with fp32 accumulation, memory in bytes (decimal GB), HBM bytes/s, watts.

    `link` is what one card sends to another of its machine, bytes/s in one direction; `network` the same to
    a card of another machine, None where there is no usual one.
    """

    name: str
    names: tuple[str, ...]  # what torch.cuda.get_device_name says, and short names for a command line
    peak_bf16_flops: Figure | None
    memory_bytes: Figure | None
    bandwidth_bytes_per_s: Figure | None
    power_w: Figure | None = None
    link_bytes_per_s: Figure | None = None
    network_bytes_per_s: Figure | None = None


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


def _power(watts: float, source: str) -> Figure:
    return Figure(watts, source, _READ)


def _link(gigabytes_per_s: float, source: str) -> Figure:
    return Figure(gigabytes_per_s * 1e9, source, _READ)


_A100_SHEET = "NVIDIA A100 data sheet"
_PCIE4 = _link(32, "PCIe Gen4 x16, 64 GB/s in both directions, NVIDIA L40S data sheet")
_PCIE5 = _link(64, "PCIe Gen5 x16, 128 GB/s in both directions, NVIDIA H100 product brief")
_NVLINK3 = _link(300, f"NVLink 3, 600 GB/s in both directions, {_A100_SHEET}")
_NVLINK4 = _link(450, "NVLink 4, 900 GB/s in both directions, NVIDIA H100 data sheet")
_NVLINK5 = _link(900, "NVLink 5, 1.8 TB/s in both directions, NVIDIA HGX B200 as Vultr documents it")
_NET200 = _link(25, "200 Gb/s a card, NVIDIA DGX A100 data sheet")
_NET400 = _link(50, "400 Gb/s a card, Llama 3 report (arXiv 2407.21783), section 3.3.1")

GPUS: tuple[Gpu, ...] = (
    Gpu(
        "A100 40GB",
        ("A100-SXM4-40GB", "A100-PCIE-40GB", "A100-40GB"),
        _peak(312, _A100),
        _memory(40),
        _bandwidth(1.555, "NVIDIA A100 data sheet, 40GB"),
        _power(400, f"{_A100_SHEET}, SXM; the PCIe card has 250"),
        _NVLINK3,
        _NET200,
    ),
    Gpu(
        "A100 80GB SXM",
        ("A100-SXM4-80GB", "A100-SXM-80GB", "A100-80GB", "A100"),
        _peak(312, _A100),
        _memory(80),
        _bandwidth(2.039, "NVIDIA A100 data sheet, 80GB SXM"),
        _power(400, f"{_A100_SHEET}, SXM"),
        _NVLINK3,
        _NET200,
    ),
    Gpu(
        "A100 80GB PCIe",
        ("A100 80GB PCIe", "A100-PCIE-80GB"),
        _peak(312, _A100),
        _memory(80),
        _bandwidth(2.0),
        _power(300, f"{_A100_SHEET}, PCIe"),
        _PCIE4,
    ),
    Gpu(
        "H100 SXM",
        ("H100 80GB HBM3", "H100-SXM5-80GB", "H100 SXM", "H100"),
        _peak(989, _H100),
        _memory(80),
        _bandwidth(3.35),
        _power(700, "NVIDIA H100 data sheet, SXM"),
        _NVLINK4,
        _NET400,
    ),
    Gpu(
        "H100 PCIe",
        ("H100 PCIe",),
        _peak(756, _H100),
        _memory(80),
        _bandwidth(2.0),
        _power(350, "NVIDIA H100 PCIe product brief PB-11133-001"),
        _PCIE5,
    ),
    Gpu(
        "H100 NVL",
        ("H100 NVL",),
        _peak(835, _H100),
        _memory(94),
        _bandwidth(3.9),
        _power(400, "NVIDIA H100 data sheet, NVL, at most"),
        _PCIE5,
    ),
    Gpu(
        "H200 SXM",
        ("H200", "H200 SXM"),
        _peak(989, _H200),
        _memory(141),
        _bandwidth(4.8),
        _power(700, "NVIDIA H200 data sheet, SXM"),
        _NVLINK4,
        _NET400,
    ),
    Gpu(
        "H200 NVL",
        ("H200 NVL",),
        _peak(836, "nanochat's hardware table"),
        _memory(141),
        _bandwidth(4.8),
        _power(600, "NVIDIA H200 data sheet, NVL"),
        _PCIE5,
    ),
    Gpu(
        "L40S",
        ("L40S",),
        _peak(362, "NVIDIA L40S data sheet, as in torchtitan and nanochat"),
        _memory(48),
        _bandwidth(0.864),
        _power(350, "NVIDIA L40S data sheet"),
        _PCIE4,
    ),
    Gpu(
        "RTX 4090",
        ("GeForce RTX 4090", "RTX 4090", "4090"),
        _peak(165.2, "NVIDIA Ada whitepaper, as in llm.c; 82.6 elsewhere is without tensor cores"),
        _memory(24),
        _bandwidth(1.01),
        _power(450, "NVIDIA, total graphics power"),
        _PCIE4,
    ),
    Gpu(
        "RTX 5090",
        ("GeForce RTX 5090", "RTX 5090", "5090"),
        _peak(209.5, "nanochat's hardware table only; agrees with a quarter of 838 sparse fp16"),
        _memory(32),
        _bandwidth(1.79),
        _power(575, "NVIDIA, total graphics power"),
        _PCIE5,
    ),
    Gpu(
        "B200",
        ("B200",),
        _peak(2250, "NVIDIA Blackwell data sheet, as in torchtitan"),
        _memory(180, "the least that is quoted: Vultr shows 179, data sheets 180 or 192"),
        _bandwidth(8.0),
        _power(1000, "NVIDIA HGX B200 as Vultr documents it"),
        _NVLINK5,
        _NET400,
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
