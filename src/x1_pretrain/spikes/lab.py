"""What an incident and its replays are made of: a trainer that can be rewound, and a batch stream.

The spike lab knows a trainer only by this protocol, so its reasoning can be tested without one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from x1_pretrain.spikes.injections import Fault, Injection


@dataclass(frozen=True)
class Step:
    """One optimizer step: nats per token, gradient norm before clipping, largest update RMS.

    `update_rms` is that of the tensor whose update, divided by its lr, is largest (None: not
    watched); above 1 an Adam update is larger than a second moment in good order can make it.
    """

    loss_nats: float
    grad_norm: float
    update_rms: float | None


@dataclass(frozen=True)
class Treatment:
    """What an arm or a remedy changes of the run as it was.

    `lr_scale` replaces the schedule's and `lr_factor` multiplies it; `grad_clip` replaces the profile's;
    `clip_update` limits each tensor's update as StableAdamW does, and to RMS 1 times its lr; targets
    `masked` ([V] bool) do not count; the updates of steps `left_out` are not made.
    """

    lr_scale: float | None = None
    lr_factor: float = 1.0
    grad_clip: float | None = None
    clip_update: bool = False
    masked: np.ndarray | None = None
    left_out: frozenset[int] = frozenset()


AS_IT_WAS = Treatment()


@dataclass(frozen=True)
class Event:
    """What the run itself does to one step besides its batch and lr: see injections.py."""

    gradient_scale: float = 1.0
    fault: Fault | None = None


NOTHING = Event()


class Trainer(Protocol):
    """A model with its optimizers. Batches are int64 [B, T+1]."""

    def step(
        self,
        batch: np.ndarray,
        lr_scale: float,
        watch: bool = False,
        treatment: Treatment = AS_IT_WAS,
        event: Event = NOTHING,
    ) -> Step:
        """One update. `watch` measures its RMS. Of a treatment, the lr and `left_out` are the caller's."""

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

    `clean(n)` gives [B, T+1] token ids.
    """

    clean: Callable[[int], np.ndarray]
    injection: Injection

    @property
    def n_vocab(self) -> int:
        return self.injection.n_vocab

    def batch(self, number: int) -> np.ndarray:
        """Batch `number` (from 1) as the trainer meets it, int64 [B, T+1]."""
        return self.injection.spoil(self.clean(number), number)


@dataclass(frozen=True)
class Row:
    """A line of the log: what a step read, at which lr (over the profile's), and what came out."""

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
    """A trainer, its stream, the fixed held-out batches, and the schedule.

    `bit_stable`: the same computation gives the same bits, as on a CPU; a GPU promises no such thing.
    """

    trainer: Trainer
    stream: Stream
    probe_batches: tuple[np.ndarray, ...]
    warmup_steps: int
    peak_scale: float = 1.0  # of every lr
    bit_stable: bool = True

    def without_injection(self) -> "Lab":
        """The run as it would have been."""
        return replace(self, stream=replace(self.stream, injection=self.stream.injection.never()))

    def probe(self) -> float:
        """Mean loss on the held-out batches, in nats: the measure of damage to the weights."""
        return sum(self.trainer.loss(batch) for batch in self.probe_batches) / len(self.probe_batches)

    def lr_scale(self, step: int) -> float:
        """lr over the profile's at a step counted from 1: linear warm-up, then constant, unless injected."""
        warm = min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        return self.peak_scale * warm * self.stream.injection.lr_factor(step)

    def train(
        self,
        steps: Iterable[int],
        number_of: Callable[[int], int] | None = None,
        treatment: Treatment = AS_IT_WAS,
        watch: bool = False,
        live: bool = False,
    ) -> Iterator[Row]:
        """Take the steps one by one; each row is yielded after its update.

        `number_of` maps a step to the batch it reads; by default to the one of the same number. `live`: the
        run itself, not a replay of it.
        """
        injection = self.stream.injection
        for step in steps:
            number = step if number_of is None else number_of(step)
            scale = self.lr_scale(step) if treatment.lr_scale is None else treatment.lr_scale
            scale *= treatment.lr_factor
            batch = self.stream.batch(number)
            if step in treatment.left_out:
                result = Step(self.trainer.loss(batch), float("nan"), None)
            else:
                event = Event(injection.gradient_scale(step), injection.fault(step, live))
                result = self.trainer.step(batch, scale, watch, treatment, event)
            yield Row(step, number, scale, result)
