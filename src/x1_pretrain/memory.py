"""How much memory a run takes, and what to do when it is too much."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from x1_pretrain.config import Train
from x1_pretrain.determinism import Used
from x1_pretrain.errors import UserError


def peak_memory_bytes(used: Used) -> int:
    """The most that the run held: of the GPU's memory, or of this process's."""
    if used.device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def explained(run_id: str, train: Train) -> Iterator[None]:
    """Turn an out-of-memory error into the next step to take: the same batch in smaller parts."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch's own out-of-memory error is a RuntimeError
        if not is_out_of_memory(error):
            raise
        raise UserError(f"{run_id}: out of memory; the last checkpoint is kept, {advice(train)}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA has a class for it; the CPU allocator only says so in words."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def advice(train: Train) -> str:
    """The next smaller micro-batch for the same tokens per step."""
    smaller = [m for m in range(1, train.micro_batch) if train.batch_sequences % m == 0]
    if not smaller:
        return "the micro-batch is one sequence already: turn device.gradient_checkpointing on"
    return (
        f"set train.micro_batch to {smaller[-1]} instead of {train.micro_batch} (the same "
        f"{train.batch_tokens} tokens per step, in smaller parts)"
    )
