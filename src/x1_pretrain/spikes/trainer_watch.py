"""The trainer's eyes: after each step the guard judges it, and what a diagnosis will need is written down."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from x1_pretrain.corpus.loader import TrainLoader
from x1_pretrain.determinism import Used
from x1_pretrain.model import GPT
from x1_pretrain.run_state import State
from x1_pretrain.spikes.guard import Spike, SpikeGuard
from x1_pretrain.spikes.vitals import probe_vitals, sequence_losses, update_vitals
from x1_pretrain.step import LossFunction, StepResult, evaluate

DETAILED_ALARMS = 8  # in a row; a run that diverges has more, and they say no more
QUOTED_DOCUMENTS = 3  # of each sequence


class TrainerWatch:
    """One run under watch. It looks at weights, gradients and optimizers, and changes none of them."""

    def __init__(
        self,
        guard: SpikeGuard,
        model: GPT,
        optimizers: list[torch.optim.Optimizer],
        loss_function: LossFunction,
        loader: TrainLoader,
        held_out: Tensor,
        micro_batch: int,
        used: Used,
    ) -> None:
        self.guard, self.model, self.optimizers, self.loader = guard, model, optimizers, loader
        self.held_out, self.micro_batch, self.used = held_out, micro_batch, used
        self._probe = functools.partial(evaluate, loss_function, held_out[:micro_batch], micro_batch, used)
        self._vitals: dict[str, float] = {}

    def look(self, step: int) -> Callable[[], None] | None:
        """What to call inside a step that is to be measured, while its gradients are there; None for most."""
        self._vitals = {}
        return self._measure if self.guard.probe_is_due(step) else None

    def _measure(self) -> None:
        self._vitals = update_vitals(self.model, self.optimizers)

    def after_step(
        self, state: State, result: StepResult, batch: Tensor, first_sequence: int
    ) -> Spike | None:
        """Judge the step that `state` now counts and note in it what was seen; a confirmed spike, or None."""
        where = {"branch": state.branch, "step": state.step}
        largest = max((v for k, v in self._vitals.items() if k.startswith("update_rms")), default=None)
        if self._vitals:
            probed = probe_vitals(self.model, self.held_out, self.used)
            numbers = {name: _finite(value) for name, value in (self._vitals | probed).items()}
            state.vitals.append(where | numbers)
        alarm, spike = self.guard.observe(
            state.step, result.loss_nats, result.grad_norm, self._probe, largest
        )
        if alarm is not None:
            recent = [a["step"] for a in state.alarms[-DETAILED_ALARMS:]]
            record = where | alarm.as_dict()
            if len(recent) < DETAILED_ALARMS or recent[0] < state.step - DETAILED_ALARMS:
                record |= self._details(batch, first_sequence)
            state.alarms.append(record)
        return spike

    def _details(self, batch: Tensor, first_sequence: int) -> dict[str, Any]:
        """The loss of each sequence of the batch, after the step, and the documents they are cut from."""
        losses = sequence_losses(self.model, batch, self.micro_batch, self.used)
        documents = self.loader.documents_of(first_sequence, len(batch))
        return {
            "first_sequence": first_sequence,
            "sequence_losses_nats": [_finite(loss) for loss in losses],
            "documents": [names[:QUOTED_DOCUMENTS] for names in documents],
        }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
