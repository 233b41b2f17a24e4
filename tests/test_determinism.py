"""What is used is what the machine has, and the record says both what was asked and what was used."""

import dataclasses

import pytest
import torch

from tests.conftest import DEVICE
from x1_pretrain import determinism
from x1_pretrain.errors import UserError

FAST = dataclasses.replace(DEVICE, precision="bf16", compile=True)


def test_without_a_compiler_training_falls_back_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(determinism.shutil, "which", lambda name: None)
    used = determinism.setup(FAST, 0)
    assert (used.precision_requested, used.precision_used) == ("bf16", "fp32")
    assert (used.compile_requested, used.compile_used) == (True, False)
    assert used.dtype == torch.float32
    assert "no C++ compiler" in capsys.readouterr().err


def test_a_compiler_named_by_CXX_counts(monkeypatch):
    monkeypatch.setenv("CXX", "my-compiler")
    monkeypatch.setattr(determinism.shutil, "which", lambda name: name if name == "my-compiler" else None)
    assert determinism.cpp_compiler() == "my-compiler"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused_before_anything_is_built():
    with pytest.raises(UserError, match=r"device\.kind: cuda was asked for but torch sees no GPU"):
        determinism.setup(dataclasses.replace(DEVICE, kind="cuda"), 0)


def test_setup_pins_threads_seed_and_determinism():
    determinism.setup(DEVICE, 5)
    first = torch.rand(3)
    determinism.setup(DEVICE, 5)
    assert torch.equal(first, torch.rand(3))
    assert torch.get_num_threads() == DEVICE.threads
    assert torch.are_deterministic_algorithms_enabled()


def test_the_kind_of_cpu_names_its_vector_units():
    assert torch.backends.cpu.get_cpu_capability() in determinism.cpu_name()
