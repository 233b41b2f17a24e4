"""The number formats that a checkpoint is served in, and how large each is on disk and in memory."""

import copy
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from x1_pretrain.errors import UserError
from x1_pretrain.inference.gptq import hessians, quantised
from x1_pretrain.inference.int4 import Int4Linear, packed
from x1_pretrain.model import GPT

FORMATS = ("fp32", "bf16", "int8", "int4")


@dataclass(frozen=True)
class Served:
    """A model ready to evaluate, and the tensors that its file holds."""

    model: GPT
    stored: dict[str, Tensor]


def converted(model: GPT, number_format: str, calibration_BT: Tensor) -> Served:
    """A copy of an fp32 model in `fp32`, `bf16`, `int8` or `int4`. Raises `UserError` for another format.

    `int8` and `int4` are weight-only and of the linear layers, the rest is bf16: embeddings are looked up,
    not multiplied with, and a tied head is untied by it. `int8` has a scale per output row (torchao), `int4`
    a scale and a zero per 32 weights, found by GPTQ on the tokens of `calibration_BT`; its head is int8.
    """
    copied = copy.deepcopy(model).eval()
    if number_format == "fp32":
        return _stored_as_it_is(copied.float())
    if number_format == "bf16":
        return _stored_as_it_is(copied.bfloat16())
    if number_format == "int8":
        return _stored_as_it_is(_int8(copied.bfloat16()))
    if number_format == "int4":
        return _int4(copied, calibration_BT)
    raise UserError(f"inference.formats: {number_format!r} is unknown; use {', '.join(FORMATS)}")


def _stored_as_it_is(model: GPT) -> Served:
    pairs = (pair for name, parameter in model.named_parameters() for pair in _plain(name, parameter))
    return Served(model, dict(pairs))


def _plain(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A tensor, or the plain tensors a quantised one is made of (torch's subclass protocol)."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor.detach()
        return
    for part in tensor.__tensor_flatten__()[0]:
        inner = getattr(tensor, part)
        if inner is not None:
            yield from _plain(f"{name}.{part}", inner)


def _int8(model: GPT, only: str | None = None) -> GPT:
    """Every linear layer, or the one of this name, in int8."""
    # Optional CUDA extensions are not needed here; without these two lines their absence is logged.
    os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
    loggers = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    quantize_(
        model,
        Int8WeightOnlyConfig(),
        filter_fn=lambda layer, name: isinstance(layer, nn.Linear) and only in (None, name),
    )
    return model


@torch.no_grad()
def _int4(model: GPT, calibration_BT: Tensor) -> Served:
    # A sequence at a time bounds the memory of the logits, which nobody reads.
    inputs = hessians(model, lambda: [model(tokens_1T) for tokens_1T in calibration_BT.split(1)])
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    del linear["head"]  # alone it costs more perplexity in 4 bits than all the other layers together
    weights = {name: quantised(layer.weight, inputs[name]) for name, layer in linear.items()}
    served, stored = _int8(model.bfloat16(), only="head"), {}
    for name, weight in weights.items():
        served.set_submodule(name, Int4Linear(weight, linear[name].in_features))
        parts = {"levels": packed(weight.levels), "scale": weight.scale, "zero": weight.zero}
        stored |= {f"{name}.weight.{part}": tensor for part, tensor in parts.items()}
    return Served(served, stored | _stored_as_it_is(served).stored)


def file_bytes(served: Served) -> int:
    """Size of the safetensors file that holds the weights, written and weighed.

    Of int4 it holds two weights to a byte in their own order, not in that of a kernel, and no padded rows.
    """
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in served.stored.items()}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file(stored, path)
        return path.stat().st_size


def memory_bytes(model: nn.Module) -> int:
    """What a model holds: parameters and buffers, as the kernels want them, shared storage once."""
    held = [*model.named_parameters(), *model.named_buffers()]
    plain = [tensor.untyped_storage() for name, whole in held for _, tensor in _plain(name, whole)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in plain}.values())
