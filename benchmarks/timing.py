"""Seconds of real training steps on real shards, for the benchmarks of our own speed."""

import statistics
import time
from collections.abc import Callable

import torch

from x1_pretrain.corpus.loader import TrainLoader
from x1_pretrain.determinism import Used
from x1_pretrain.spikes.trainer import TorchTrainer
from x1_pretrain.study import Study

WARM_STEPS = 3  # compilation, caches, the optimizer's state


def step_seconds(study: Study, model: str, loader: TrainLoader, used: Used, n_steps: int) -> float:
    """Median seconds of a training step of a model at its peak lr; the batch is loaded before the clock."""
    torch.compiler.reset()  # the graphs of an earlier model would count against torch's limit
    trainer = TorchTrainer(
        study.shape_of(model),
        study.choice.recipe,
        study.profile.train,
        loader.tokens.n_vocab,
        study.choice.seed,
        used,
    )
    batches = [loader.batch(step) for step in range(WARM_STEPS + n_steps)]
    for batch in batches[:WARM_STEPS]:
        trainer.step(batch, 1.0)
    return statistics.median(seconds(lambda b=batch: trainer.step(b, 1.0)) for batch in batches[WARM_STEPS:])


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock seconds of a call that itself waits for its result."""
    clock = time.perf_counter()
    work()
    return time.perf_counter() - clock
