import pytest

from x1_pretrain.economics.hardware import GPUS, find_gpu, mfu
from x1_pretrain.errors import UserError


@pytest.mark.parametrize(
    "name, tflops",
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("a100-80gb", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 5090", 209.5),
        ("NVIDIA B200", 2250),
    ],
)
def test_device_names_of_torch_and_short_names(name, tflops):
    assert find_gpu(name).gpu.peak_bf16_flops.value == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "cpu", "", "GB200"],
)
def test_unknown_card_is_none_with_a_reason_that_lists_the_known(name):
    found = find_gpu(name)
    assert found.gpu is None
    assert "RTX 5090" in found.reason and repr(name) in found.reason


def test_every_figure_has_a_source_and_a_date_and_names_are_unique():
    for gpu in GPUS:
        figures = (gpu.peak_bf16_flops, gpu.memory_bytes, gpu.bandwidth_bytes_per_s, gpu.power_w)
        for figure in (*figures, gpu.link_bytes_per_s, gpu.network_bytes_per_s):
            assert figure is None or (figure.value > 0 and figure.source and figure.date)
        for name in (gpu.name, *gpu.names):
            assert find_gpu(name).gpu is gpu


def test_mfu_of_a_worked_example():
    """The research's example: 356 MFLOP per token at 307 ktok/s on 312 TFLOP/s is 35%."""
    assert mfu(307e3, 356e6, 312e12) == pytest.approx(0.35, rel=0.01)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_mfu_refuses_what_it_cannot_divide(bad):
    with pytest.raises(UserError, match="peak_flops"):
        mfu(1.0, 1.0, bad)
