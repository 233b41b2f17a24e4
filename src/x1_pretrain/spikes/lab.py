"""What an incident and its replays are made of: a trainer that can be rewound, and a batch stream.

The spike lab knows a trainer only by this protocol, so its reasoning can be tested without one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from x1_pretrain.spikes.injections import spoil


@dataclass(frozen=True)
class Step:
    """One optimizer step: nats per token, gradient norm before clipping, largest update RMS.

    `update_rms` is that of the tensor whose update, divided by its lr, is largest (None: not
    watched); above 1 an Adam update is larger than a second moment in good order can make it.
    """

    loss_nats: float
    grad_norm: float
    update_rms: float | None


class Trainer(Protocol):
    """A model with its optimizers. Batches are int64 [B, T+1]."""

    def step(
        self, batch: np.ndarray, lr_scale: float, watch: bool = False, clip_update: bool = False
    ) -> Step:
        """One update. `watch` measures the update's RMS; `clip_update` limits it to 1."""

    def loss(self, batch: np.ndarray) -> float:
        """Mean loss in nats, forward only."""

    def token_losses(self, batch: np.ndarray) -> np.ndarray:
        """Loss of every target in nats, [B, T], forward only."""

    def snapshot(self) -> Any:
        """A copy of everything an update reads or writes."""

    def restore(self, snapshot: Any) -> None:
        """Go back to a copy; it stays usable."""


@dataclass(frozen=True)
class Stream:
    """The batches of a run, some of them spoiled. Batch n is the one that step n reads by default.

    `clean(n)` gives [B, T+1] token ids; batches `first` to `last` (inclusive) are spoiled.
    """

    clean: Callable[[int], np.ndarray]
    injection: str
    first: int
    last: int
    n_vocab: int
    seed: int

    def batch(self, number: int) -> np.ndarray:
        """Batch `number` (from 1) as the trainer meets it, int64 [B, T+1]."""
        batch = self.clean(number)
        if self.first <= number <= self.last:
            return spoil(batch, self.injection, self.n_vocab, self.seed, number)
        return batch

    def without_injection(self) -> "Stream":
        """The stream as it would have been: what the no-spike control reads."""
        return replace(self, first=0, last=-1)


@dataclass(frozen=True)
class Row:
    """A line of the log: what a step read, at which lr (over the peak), and what came out."""

    step: int
    batch: int
    lr_scale: float
    result: Step


@dataclass(frozen=True)
class State:
    """A snapshot after `step` steps, with the probe loss at that moment."""

    step: int
    snapshot: Any
    probe_nats: float


@dataclass(frozen=True)
class Lab:
    """A trainer, its stream, the fixed held-out batches, and the schedule."""

    trainer: Trainer
    stream: Stream
    probe_batches: tuple[np.ndarray, ...]
    warmup_steps: int
    peak_scale: float = 1.0  # of every lr

    def probe(self) -> float:
        """Mean loss on the held-out batches, in nats: the measure of damage to the weights."""
        return sum(self.trainer.loss(batch) for batch in self.probe_batches) / len(self.probe_batches)

    def lr_scale(self, step: int) -> float:
        """lr over the profile's at a step counted from 1: linear warm-up, then constant."""
        return self.peak_scale * (min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0)

    def train(
        self,
        steps: Iterable[int],
        number_of: Callable[[int], int] | None = None,
        lr_factor: float = 1.0,
        watch: bool = False,
        clip_update: bool = False,
    ) -> Iterator[Row]:
        """Take the steps one by one; each row is yielded after its update.

        `number_of` maps a step to the batch it reads; by default to the one of the same number.
        """
        for step in steps:
            number = step if number_of is None else number_of(step)
            scale = self.lr_scale(step) * lr_factor
            batch = self.stream.batch(number)
            yield Row(step, number, scale, self.trainer.step(batch, scale, watch, clip_update))
