"""What makes two runs the same run: configuration, data, code, and what the machine computes with."""

import hashlib
from pathlib import Path

import torch

from x1_pretrain.config import digest
from x1_pretrain.determinism import Used
from x1_pretrain.run_spec import RunSpec

PACKAGE = Path(__file__).parent
# The files whose code decides a run's bits: their hash is part of the run's identity.
SOURCES = (
    "train.py",
    "step.py",
    "run_state.py",
    "model.py",
    "attention.py",
    "cross_entropy.py",
    "optim.py",
    "shape.py",
    "run_spec.py",
    "schedule.py",
    "checkpoint.py",
    "determinism.py",
    "noise_scale.py",
    "corpus/loader.py",
    "corpus/llmc.py",
    "spikes/monitor.py",
)
TORCH = torch.__version__.split("+")[0]  # CPU and CUDA builds differ in what follows the plus


def source_sha256() -> str:
    """sha256 over the code that decides a run's bits."""
    sha = hashlib.sha256()
    for name in SOURCES:
        sha.update(name.encode() + (PACKAGE / name).read_bytes())
    return sha.hexdigest()


def fingerprint(spec: RunSpec, used: Used, data_sha256: str) -> str:
    """The identity of a run's state: equal only if every step would be the same."""
    parts = (spec.shape, spec.recipe, spec.train, spec.device, spec.schedule, used)
    return digest(*parts, spec.eval_every, spec.seed, data_sha256, TORCH, source_sha256())
