"""A model that is ready to train on a device, put together as the trainer does it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_checks.scale import Case
from x1_pretrain.config import Device
from x1_pretrain.determinism import Used, setup
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers
from x1_pretrain.step import LossFunction, StepResult, backward, compiled, train_step

SEED = 0


@dataclass(frozen=True)
class Trainee:
    """A model of a case with its optimizers, on the device of `used`."""

    case: Case
    used: Used
    model: GPT
    optimizers: list[torch.optim.Optimizer]
    loss_function: LossFunction

    @classmethod
    def of(cls, case: Case, device: Device) -> "Trainee":
        """Sets seeds and flags for the device. Raises `UserError` for an attention that is not there."""
        torch.compiler.reset()  # the graphs of an earlier model would count against torch's limit
        used = setup(device, SEED)
        model = GPT(
            case.shape,
            case.recipe,
            case.n_vocab,
            case.train.seq_len,
            base_width=case.train.base_width,
            attention=used.attention_used,
            gradient_checkpointing=device.gradient_checkpointing,
        )
        model.initialise(SEED).to(used.device)
        model.set_window(case.window)
        return cls(case, used, model, build_optimizers(model, case.train, case.recipe), compiled(model, used))

    def step(self, batch_BT: Tensor) -> StepResult:
        """One real training step at the peak lr; it waits for its loss. Raises `ArithmeticError` for NaN."""
        batch_BT = batch_BT.to(self.used.device)
        train = self.case.train
        result = train_step(self.loss_function, self.model, self.optimizers, batch_BT, train, 1.0, self.used)
        if not result.finite:
            raise ArithmeticError(f"a training step is not finite: {result}")
        return result

    def gradient(self, batch_BT: Tensor) -> tuple[float, dict[str, Tensor]]:
        """Loss in nats and every parameter's gradient, on the CPU."""
        batch_BT = batch_BT.to(self.used.device)
        loss_nats = backward(self.loss_function, batch_BT, self.case.train.micro_batch, self.used)
        gradient = {name: p.grad.cpu() for name, p in self.model.named_parameters()}
        self.model.zero_grad()
        return loss_nats, gradient

    def weights(self) -> dict[str, Tensor]:
        """A copy on the CPU."""
        return {name: weight.cpu().clone() for name, weight in self.model.state_dict().items()}


def batches(case: Case, count: int) -> list[Tensor]:
    """`count` batches [B, T+1] of tokens, low ones the more frequent: there is something to learn."""
    generator = torch.Generator().manual_seed(SEED)
    size = (count, case.train.batch_sequences, case.train.seq_len + 1)
    uniform = torch.rand(size, generator=generator, dtype=torch.float64)
    return list((uniform.square() * case.n_vocab).long())


def reference_device(threads: int) -> Device:
    """What everything is compared with: fp32 on the CPU, uncompiled, with torch's own attention."""
    return Device("cpu", threads, "fp32", compile=False, attention="sdpa", gradient_checkpointing=False)
