"""The real trainer behind the lab's protocol: the same model, optimizers and step as any run."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from x1_pretrain import checkpoint
from x1_pretrain.config import Train
from x1_pretrain.determinism import Used
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers
from x1_pretrain.shape import ModelShape, Recipe
from x1_pretrain.spikes.lab import AS_IT_WAS, NOTHING, Event, Step, Treatment
from x1_pretrain.spikes.vitals import adam_sizes
from x1_pretrain.step import LossFunction, compiled, evaluate, train_step

MAX_UPDATE_RMS = 1.0
STALE_FACTOR = 1e-4  # of a second moment that fell behind
FLIPPED_BIT = 30  # the highest of fp32's exponent


class TorchTrainer:
    """See `lab.Trainer`. Snapshots hold weights, optimizer state and RNG streams."""

    def __init__(
        self, shape: ModelShape, recipe: Recipe, train: Train, n_vocab: int, seed: int, used: Used
    ) -> None:
        self.train, self.used = train, used
        self.model = GPT(
            shape,
            recipe,
            n_vocab,
            train.seq_len,
            base_width=train.base_width,
            attention=used.attention_used,
        )
        self.model.initialise(seed).to(used.device)
        self.optimizers = build_optimizers(self.model, train, recipe)
        self.loss_function = compiled(self.model, used)

    def step(
        self,
        batch: np.ndarray,
        lr_scale: float,
        watch: bool = False,
        treatment: Treatment = AS_IT_WAS,
        event: Event = NOTHING,
    ) -> Step:
        """One optimizer step; see `lab.Trainer.step`."""
        watch = watch or treatment.clip_update
        before = self._weights() if watch else []
        tokens = torch.from_numpy(batch).to(self.used.device)
        model, optimizers, train = self.model, self.optimizers, self.train
        if treatment.grad_clip is not None:
            train = replace(train, grad_clip=treatment.grad_clip)
        if event.fault in ("stale_moment", "bit_flip"):
            spoil_state(model, optimizers, event.fault)
        loss_function, lags = self._loss_of(tokens, treatment, event), {}
        result = train_step(
            loss_function,
            model,
            optimizers,
            tokens,
            train,
            lr_scale,
            self.used,
            look=(lambda: lags.update(self._lags())) if treatment.clip_update else None,
        )
        if not result.finite:  # the optimizer was not touched; the monitor will say so
            return Step(math.nan, math.nan, None)
        rms = self._update_rms(before, lags, treatment.clip_update) if watch else None
        return Step(result.loss_nats, result.grad_norm, rms)

    def _loss_of(self, tokens: Tensor, treatment: Treatment, event: Event) -> LossFunction:
        """The model's loss function, with masked targets or a gradient that is not the loss's."""
        loss_function = self.loss_function
        if treatment.masked is not None:
            loss_function = self._masked_loss(tokens, treatment.masked)
        factor = math.nan if event.fault == "nan_gradient" else event.gradient_scale
        return loss_function if factor == 1.0 else with_gradient_times(loss_function, factor)

    def _masked_loss(self, tokens: Tensor, masked: np.ndarray) -> LossFunction:
        """Sums that, over all targets' number, are the mean over those that are not masked."""
        kept_V = torch.from_numpy(~masked).to(tokens.device)
        share = kept_V[tokens[:, 1:]].double().mean().item()

        def loss(inputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
            losses = self.model.loss(inputs, targets, "none")
            return (losses * kept_V[targets.flatten()]).sum() / share

        return loss

    def loss(self, batch: np.ndarray) -> float:
        """Mean loss in nats, forward only."""
        tokens = torch.from_numpy(batch).to(self.used.device)
        return evaluate(self.loss_function, tokens, self.train.micro_batch, self.used)

    @torch.no_grad()
    def token_losses(self, batch: np.ndarray) -> np.ndarray:
        """Loss of every target in nats, [B, T], forward only."""
        tokens = torch.from_numpy(batch).to(self.used.device)
        losses = []
        for micro in tokens.split(self.train.micro_batch):  # a whole batch's logits may not fit
            with self.used.autocast():
                losses.append(self.model.loss(micro[:, :-1], micro[:, 1:], reduction="none"))
        return torch.cat(losses).view(batch.shape[0], -1).cpu().numpy()

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of everything an update reads or writes."""
        return checkpoint.snapshot(self.model, self.optimizers)

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Go back to a copy; it stays usable."""
        checkpoint.restore(snapshot, self.model, self.optimizers)

    def _weights(self) -> list[Tensor]:
        """Copies of all weights, in the order of the optimizers' groups."""
        return [weight.detach().clone() for weight, _ in self._weights_and_lr()]

    def _weights_and_lr(self) -> list[tuple[Tensor, float]]:
        return [
            (weight, group["lr"])
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for weight in group["params"]
        ]

    def _lags(self) -> dict[int, float]:
        """How far each tensor's second moment is behind its gradient; see `vitals.adam_sizes`."""
        return {
            id(weight): adam_sizes(optimizer.state[weight], group, weight.grad)[1].item()
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for weight in group["params"]
            if "exp_avg_sq" in optimizer.state.get(weight, {}) and weight.grad is not None
        }

    @torch.no_grad()
    def _update_rms(self, before: list[Tensor], lags: dict[int, float], clip: bool) -> float:
        """Largest RMS of a tensor's update over its lr; `clip` divides each update by what it has too much.

        That is sqrt(mean(g^2 / v)), as in StableAdamW (Wortsman et al. 2023), or the RMS itself, whichever is
        larger, if above 1; done on the update itself, so that no optimizer needs to know. Where AdamW's
        second moment is in good order, the RMS is below 1.
        """
        largest = 0.0
        for old, (weight, lr) in zip(before, self._weights_and_lr(), strict=True):
            rms = (weight - old).square().mean().sqrt().item() / lr
            largest = max(largest, rms)
            too_much = max(rms, lags.get(id(weight), 0.0))
            if clip and too_much > MAX_UPDATE_RMS:
                weight.copy_(torch.lerp(old, weight, MAX_UPDATE_RMS / too_much))
        return largest


def with_gradient_times(loss_function: LossFunction, factor: float) -> LossFunction:
    """The same loss, its gradient multiplied."""

    def loss(inputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
        value = loss_function(inputs, targets, reduction)
        value.register_hook(lambda gradient: gradient * factor)
        return value

    return loss


@torch.no_grad()
def spoil_state(model: GPT, optimizers: list[torch.optim.Optimizer], fault: str) -> None:
    """Do to AdamW's state what an injection says: `stale_moment`, or `bit_flip` in the head's momentum."""
    if fault == "stale_moment":
        for optimizer in optimizers:
            for state in optimizer.state.values():
                if "exp_avg_sq" in state:
                    state["exp_avg_sq"].mul_(STALE_FACTOR)
        return
    (momentum,) = [
        optimizer.state[model.head.weight]["exp_avg"]
        for optimizer in optimizers
        if "exp_avg" in optimizer.state.get(model.head.weight, {})
    ]
    words, place = momentum.view(-1).view(torch.int32), momentum.abs().argmax()
    words[place] = words[place] ^ (1 << FLIPPED_BIT)
