"""One step, one evaluation: what is done to a batch, whoever trains (a run, the spike lab, a benchmark)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from x1_pretrain.config import Train
from x1_pretrain.determinism import Used
from x1_pretrain.model import GPT
from x1_pretrain.optim import set_lr

LossFunction = Callable[[Tensor, Tensor, str], Tensor]


@dataclass(frozen=True)
class StepResult:
    """Mean loss over the batch's tokens (nats) and the gradient's L2 norm before clipping.

    `updated` is False where a finite step was left out.
    """

    loss_nats: float
    grad_norm: float
    updated: bool = True

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss_nats) and math.isfinite(self.grad_norm)


def backward(loss_function: LossFunction, batch: Tensor, micro_batch: int, used: Used) -> float:
    """Add the gradient of the mean loss over all tokens of `batch` [B, T+1]; returns that loss in nats.

    The token mean of the whole batch, whatever the micro-batch.
    """
    n_tokens = batch.size(0) * (batch.size(1) - 1)
    total = torch.zeros((), dtype=torch.float64, device=batch.device)
    for micro in batch.split(micro_batch):
        with used.autocast():
            loss = loss_function(micro[:, :-1], micro[:, 1:], "sum") / n_tokens
        loss.backward()
        total += loss.detach()
    return total.item()


def train_step(
    loss_function: LossFunction,
    model: GPT,
    optimizers: list[torch.optim.Optimizer],
    batch: Tensor,
    train: Train,
    lr_scale: float,
    used: Used,
    vetoed: Callable[[float, float], bool] | None = None,
    look: Callable[[], None] | None = None,
) -> StepResult:
    """One optimizer step on `batch` [B, T+1]; weights and moments stay as they are if it is not finite.

    Nor does a step that `vetoed` (of loss and gradient norm) forbids change them. `look` is called after the
    update, with the gradients still there.
    """
    loss_nats = backward(loss_function, batch, train.micro_batch, used)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), train.grad_clip or math.inf)
    result = StepResult(loss_nats, norm.item())
    if result.finite and vetoed is not None and vetoed(result.loss_nats, result.grad_norm):
        result = replace(result, updated=False)
    if result.finite and result.updated:
        set_lr(optimizers, lr_scale)
        with used.autocast():  # Muon multiplies matrices
            for optimizer in optimizers:
                optimizer.step()
        if look is not None:
            look()
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    return result


def evaluate(loss_function: LossFunction, windows: Tensor, micro_batch: int, used: Used) -> float:
    """Mean loss in nats per token over `windows` [n, T+1]. Moves no RNG, touches no gradient.

    Autograd stays on, and its graph unused, so that training's compiled graph serves here too.
    """
    total = torch.zeros((), dtype=torch.float64, device=windows.device)
    for micro in windows.split(micro_batch):
        with used.autocast():
            total += loss_function(micro[:, :-1], micro[:, 1:], "sum").detach()
    return (total / (windows.size(0) * (windows.size(1) - 1))).item()


def compiled(model: GPT, used: Used) -> LossFunction:
    """The model's loss, compiled where that is used."""
    return torch.compile(model.loss, dynamic=False) if used.compile_used else model.loss
