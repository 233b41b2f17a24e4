"""Atomic checkpoints, and the locked scratch folder in which a run survives any kill.

A checkpoint is a folder: `tensors.safetensors` (parameters, optimizer state, RNG streams) and
`state.json` (everything else, with the sha256 of the tensors). It is written under a temporary name,
fsynced and renamed, so that a torn one cannot carry the final name; a damaged one is named and skipped.
Scratch is not an output of DVC: see `Scratch`.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from x1_pretrain.deliverables.files import read_json, sha256_of, write_json
from x1_pretrain.errors import UserError
from x1_pretrain.model import GPT
from x1_pretrain.paths import scratch_root
from x1_pretrain.shape import ModelShape, Recipe
from x1_pretrain.typed_yaml import build


def snapshot(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Copies of every parameter, optimizer tensor and RNG stream, by name, on the CPU."""
    tensors = {f"model.{name}": tensor for name, tensor in model.named_parameters()}
    for i, optimizer in enumerate(optimizers):
        for j, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{j}.{key}": value for key, value in state.items()}
    tensors["rng.cpu"] = torch.get_rng_state()
    if next(model.parameters()).is_cuda:
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def restore(tensors: dict[str, Tensor], model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Put a snapshot back, exactly. Raises `UserError` naming a part that it lacks."""
    if "rng.cpu" not in tensors:
        raise UserError("checkpoint: it has weights only, no training state; a run cannot resume from it")
    for name, parameter in model.named_parameters():
        if f"model.{name}" not in tensors:
            raise UserError(f"checkpoint: it has no parameter {name!r}; it belongs to another model")
        parameter.copy_(tensors[f"model.{name}"])
    for i, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        prefix = f"optimizer.{i}."
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                index, key = name.removeprefix(prefix).split(".", 1)
                state.setdefault(int(index), {})[key] = tensor.clone()
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors and next(model.parameters()).is_cuda:
        torch.cuda.set_rng_state(tensors["rng.cuda"])


def state_hash(tensors: dict[str, Tensor]) -> str:
    """sha256 over names, shapes and bytes: equal for equal training state."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[bool]:
    """Hold the lock file `path`. Yields True if another process had it and we waited for it.

    Waiting, not refusing: after a `kill -9` of dvc its trainer may still run and finish the work.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as stream:
        waited = False
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            owner = path.read_text().strip() or "of unknown id"
            print(f"process {owner} {what}; waiting for it to end (`kill` makes it save)", file=sys.stderr)
            fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        stream.truncate()
        stream.write(str(os.getpid()))
        stream.flush()
        yield waited


class Scratch:
    """`.scratch/<stage>/<fingerprint>/`: where one run keeps its resumable state, one writer at a time."""

    def __init__(self, stage: str, fingerprint: str, keep: int = 2) -> None:
        self.fingerprint = fingerprint
        self.folder = scratch_root() / stage / fingerprint[:16]
        self.keep = keep
        self.folder.mkdir(parents=True, exist_ok=True)

    def lock(self) -> AbstractContextManager[bool]:
        """Hold the run exclusively; see `exclusive`."""
        return exclusive(self.folder / "lock", "trains this run")

    def save(self, name: str, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write checkpoint `name` atomically. On a full disk the earlier checkpoints stay valid."""
        temporary, final = self.folder / f".{name}.tmp", self.folder / name
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            save_file(tensors, temporary / "tensors.safetensors")
            record = {
                "fingerprint": self.fingerprint,
                "tensors_sha256": sha256_of(temporary / "tensors.safetensors"),
                "state": state,
            }
            (temporary / "state.json").write_text(json.dumps(record), encoding="utf-8")
            for path in temporary.iterdir():
                _fsync(path)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(temporary, final)
            _fsync(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise UserError(
                f"{final}: the checkpoint could not be written ({reason(error)}); "
                "earlier checkpoints are intact, make room and run the same command again"
            ) from error
        for old in self._steps()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """One checkpoint by name. Raises `UserError` if it is missing or damaged."""
        folder = self.folder / name
        record = read_json(folder / "state.json")
        tensors = folder / "tensors.safetensors"
        if record.get("fingerprint") != self.fingerprint:
            raise UserError(
                f"{folder}: a checkpoint of another run (fingerprint {record.get('fingerprint')}, this run's "
                f"is {self.fingerprint}): its model, data, recipe or code differ; remove it"
            )
        if not tensors.is_file() or sha256_of(tensors) != record.get("tensors_sha256"):
            raise UserError(
                f"{tensors}: damaged, its sha256 is not the one in state.json; delete {self.folder} to train "
                "the run again from its start"
            )
        return load_file(tensors), record["state"]

    def latest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole; damaged ones are named on stderr and removed."""
        for folder in reversed(self._steps()):
            try:
                return self.load(folder.name)
            except UserError as error:
                print(f"skipping a checkpoint: {error}", file=sys.stderr)
                shutil.rmtree(folder, ignore_errors=True)
        return None

    def rewind_point(self, step: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The newest whole checkpoint at or before `step`, or else the oldest; what came after it is removed.

        Without a step, the newest. Raises `UserError` if none is left.
        """
        found = self.latest()
        while found is not None and step is not None and found[1]["step"] > step and len(self._steps()) > 1:
            shutil.rmtree(self._steps()[-1], ignore_errors=True)
            found = self.latest()
        if found is None:
            raise UserError(f"{self.folder}: no whole checkpoint is left to go back to; train the run again")
        return found

    @property
    def delivered(self) -> bool:
        """Whether the finished run's outputs were all written."""
        return (self.folder / "delivered").exists()

    def mark_delivered(self, delivered: bool = True) -> None:
        if delivered:
            (self.folder / "delivered").touch()
        else:
            (self.folder / "delivered").unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget the run, keeping the folder and its lock."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != "lock":
                path.unlink(missing_ok=True)

    def _steps(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))


@dataclass(frozen=True)
class ModelCard:
    """model.json: what it takes to build the model whose weights lie beside it."""

    shape: ModelShape
    recipe: Recipe
    n_vocab: int
    seq_len: int
    base_width: int
    tokenizer: str


def publish(folder: Path, model: GPT, info: dict[str, Any]) -> Path:
    """The deliverable checkpoint: `model.safetensors` and `model.json`, enough to load it anywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    path, weights = folder / "model.safetensors", {}
    for name, parameter in model.named_parameters():
        weights[name] = parameter.detach().to("cpu").contiguous()
    try:
        save_file(weights, path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: could not be written ({reason(error)})") from error
    write_json(folder / "model.json", info)
    return path


def load_model(folder: Path) -> tuple[GPT, dict[str, Any]]:
    """The model of a published checkpoint, in fp32 on the CPU, and its model.json."""
    info, where = read_json(folder / "model.json"), str(folder / "model.json")
    card = build(ModelCard, info, where)
    model = GPT(card.shape, card.recipe, card.n_vocab, card.seq_len, base_width=card.base_width)
    path = folder / "model.safetensors"
    try:
        missing = model.load_state_dict(load_file(path), strict=False).missing_keys
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"{path}: not the weights of {where} ({reason(error)})") from error
    if [name for name in missing if not (card.recipe.tied_head and name == "head.weight")]:
        raise UserError(f"{path}: lacks {', '.join(missing)}")
    return model, info


def reason(error: Exception) -> str:
    """An error's own words on one line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
