"""nanoGPT's own model and optimizer, stepped as the loop of its train.py does on a CPU: fp32, compiled."""

import math
from pathlib import Path

import torch
from torch import Tensor

from contest.peer_source import constants, module_from
from contest.terms import Terms

WARMUP_STEPS = 100  # its train.py has 2000, of 600000 steps; this is its config/train_shakespeare_char.py
FINAL_LR = 0.1  # min_lr "should be ~= learning_rate/10", says train.py


class NanoGPT:
    """See `peer_side.Peer`. The lr that is swept is `learning_rate`, the peak of the cosine."""

    files = ("model.py", "train.py")

    def __init__(self, checkout: Path, terms: Terms, n_vocab: int) -> None:
        names = ("weight_decay", "beta1", "beta2", "grad_clip")
        self.settings = constants(checkout / "train.py", names)
        source = module_from(checkout / "model.py", "nanogpt_model")
        shape = source.GPTConfig(
            block_size=terms.seq_len,
            vocab_size=n_vocab,
            n_layer=terms.n_layer,
            n_head=terms.n_head,
            n_embd=terms.d_model,
            dropout=0.0,
            bias=False,
        )
        torch.manual_seed(terms.seed)
        self.model = source.GPT(shape)
        self.forward = torch.compile(self.model) if terms.compile else self.model

    def begin(self, lr: float, n_steps: int) -> None:
        self.lr, self.n_steps = lr, n_steps
        betas = (self.settings["beta1"], self.settings["beta2"])
        self.optimizer = self.model.configure_optimizers(self.settings["weight_decay"], lr, betas, "cpu")

    def step(self, step: int, x_BT: Tensor, y_BT: Tensor) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * lr_scale(step, self.n_steps)
        _, loss = self.forward(x_BT, y_BT)
        loss.backward()
        if self.settings["grad_clip"]:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings["grad_clip"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def loss(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        return self.forward(x_BT, y_BT)[1]


def lr_scale(step: int, n_steps: int) -> float:
    """lr / peak lr at a step from 0: linear warm-up, then a cosine to a tenth (`get_lr` of train.py).

    A run too short for the warm-up has one of an eighth of its steps.
    """
    warmup = min(WARMUP_STEPS, n_steps // 8)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    cosine = 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / (n_steps - warmup)))
    return FINAL_LR + (1.0 - FINAL_LR) * cosine
