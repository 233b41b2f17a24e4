"""Out of memory: the message proposes the next smaller micro-batch at the same tokens per step."""

import dataclasses

import pytest
import torch

from tests.conftest import TRAIN
from tests.test_meters import CPU
from x1_pretrain import memory
from x1_pretrain.errors import UserError


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
)
def test_the_next_micro_batch_is_proposed(error):
    train = dataclasses.replace(TRAIN, batch_sequences=12, micro_batch=6)
    words = r"micro_batch to 4 instead of 6 \(the same 384 tokens per step"
    with pytest.raises(UserError, match=words), memory.explained("x", train):
        raise error


def test_torchs_own_failure_to_allocate_is_recognised():
    """The real message of the CPU allocator, not a copy of it."""
    with pytest.raises(UserError, match="out of memory"), memory.explained("x", TRAIN):
        torch.empty(2**50)


def test_at_one_sequence_checkpointing_is_proposed():
    train = dataclasses.replace(TRAIN, micro_batch=1)
    assert "gradient_checkpointing" in memory.advice(train)


def test_other_errors_pass_through():
    with pytest.raises(RuntimeError, match="shapes"), memory.explained("x", TRAIN):
        raise RuntimeError("shapes do not match")


def test_the_peak_is_this_processes():
    assert 10 * 2**20 < memory.peak_memory_bytes(CPU) < 2**40
