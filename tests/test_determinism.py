"""What is used is what the machine has, and the record says both what was asked and what was used."""

import dataclasses

import pytest
import torch

from tests.conftest import DEVICE
from x1_pretrain import attention, determinism
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


def device(**changes):
    return dataclasses.replace(DEVICE, **changes)


@pytest.fixture
def gpu_with_flash(monkeypatch):
    """As if torch saw a GPU and the package flash-attn were installed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: name)


def test_attention_on_a_cpu_is_sdpa_and_the_record_says_what_was_asked_for():
    used = determinism.setup(DEVICE, 0)
    assert (used.attention_requested, used.attention_used) == ("auto", "sdpa")


def test_flash_without_its_package_is_one_sentence_that_names_it(monkeypatch):
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"^device\.attention: flash .*flash-attn.*use auto or sdpa$"
    ) as error:
        determinism.setup(device(attention="flash"), 0)
    assert "not installed" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.usefixtures("gpu_with_flash")
@pytest.mark.parametrize(
    ("kind", "precision", "why"),
    [("cpu", "bf16", "this run in bf16 on cpu"), ("cuda", "fp32", "this run in fp32 on cuda")],
)
def test_flash_is_refused_for_a_run_it_cannot_compute(kind, precision, why):
    asked = device(kind=kind, precision=precision, attention="flash")
    with pytest.raises(UserError, match=rf"device\.attention: flash cannot be used: .*bf16 on a GPU, {why};"):
        determinism.attention_backend(asked, precision, compiles=True)


@pytest.mark.usefixtures("gpu_with_flash")
def test_flex_uncompiled_is_refused():
    asked = device(kind="cuda", attention="flex")
    with pytest.raises(UserError, match=r"device\.attention: flex cannot be used: .*compiled.*auto or sdpa"):
        determinism.attention_backend(asked, "bf16", compiles=False)
    assert determinism.attention_backend(asked, "bf16", compiles=True) == "flex"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("library", ["flash", "flex"])
def test_what_needs_a_gpu_is_refused_without_one(monkeypatch, library):
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: name)
    with pytest.raises(UserError, match=rf"{library} trains on a GPU only and torch sees none"):
        determinism.setup(device(attention=library, compile=True), 0)


@pytest.mark.usefixtures("gpu_with_flash")
@pytest.mark.parametrize(
    ("kind", "precision", "used"),
    [("cuda", "bf16", "flash"), ("cuda", "fp32", "sdpa"), ("cpu", "bf16", "sdpa")],
)
def test_auto_is_flash_where_it_computes_and_sdpa_elsewhere(kind, precision, used):
    assert determinism.attention_backend(device(kind=kind), precision, compiles=False) == used


def test_auto_without_the_package_is_sdpa(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: None)
    assert determinism.attention_backend(device(kind="cuda"), "bf16", compiles=True) == "sdpa"


def test_the_kind_of_cpu_names_its_vector_units():
    assert torch.backends.cpu.get_cpu_capability() in determinism.cpu_name()
