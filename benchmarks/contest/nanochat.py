"""nanochat's own model and optimizer, stepped as the loop of its scripts/base_train.py does.

Its options have their defaults, except those that its runs/runcpu.sh sets for a CPU: full attention in every
layer (`--window-pattern=L`; a window is an explicit mask there, which is slow) and the batch. Value
embeddings, smear, backout and per-layer scalars are on, as always there.
"""

import gc
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from contest.peer_source import argparse_defaults, package_module
from contest.terms import Terms

# In scripts/base_train.py but not among its options: the batch its lr are tuned for, in tokens, and the
# depth, width and head size of the model they are tuned for.
REFERENCE_BATCH = 2**19
REFERENCE_DEPTH, REFERENCE_WIDTH, REFERENCE_HEAD = 12, 768, 128
MOMENTUM_RAMP = 400  # steps
MOMENTUM_FIRST, MOMENTUM, MOMENTUM_LAST = 0.85, 0.97, 0.90
OPTIONS = (
    "embedding_lr",
    "unembedding_lr",
    "matrix_lr",
    "scalar_lr",
    "weight_decay",
    "warmup_steps",
    "warmdown_ratio",
    "final_lr_frac",
    "target_param_data_ratio",
)


class NanoChat:
    """See `peer_side.Peer`. The lr that is swept multiplies all four lr, on top of its rule for the batch."""

    files = ("nanochat/gpt.py", "nanochat/optim.py", "scripts/base_train.py")

    def __init__(self, checkout: Path, terms: Terms, n_vocab: int) -> None:
        self.options = argparse_defaults(checkout / "scripts/base_train.py", OPTIONS)
        self.source = package_module(checkout, "nanochat.gpt")
        torch.manual_seed(terms.seed)
        self.model = self._on_meta(terms, n_vocab, terms.n_layer, terms.d_model, terms.n_head)
        reference = self._on_meta(
            terms, n_vocab, REFERENCE_DEPTH, REFERENCE_WIDTH, REFERENCE_WIDTH // REFERENCE_HEAD
        )
        self.batch_scale = math.sqrt(terms.batch_tokens / REFERENCE_BATCH)
        self.size_scale = _scaling_params(reference) / _scaling_params(self.model)
        self.model.to_empty(device="cpu")
        self.model.init_weights()
        self.forward = torch.compile(self.model, dynamic=False) if terms.compile else self.model

    def _on_meta(
        self, terms: Terms, n_vocab: int, n_layer: int, d_model: int, n_head: int
    ) -> torch.nn.Module:
        shape = self.source.GPTConfig(
            sequence_len=terms.seq_len,
            vocab_size=n_vocab,
            n_layer=n_layer,
            n_head=n_head,
            n_kv_head=n_head,
            n_embd=d_model,
            window_pattern="L",
        )
        with torch.device("meta"):
            return self.source.GPT(shape)

    def begin(self, lr: float, n_steps: int) -> None:
        options, scale = self.options, self.batch_scale * lr
        self.schedule = Schedule(
            n_steps,
            min(int(options["warmup_steps"]), n_steps // 4),
            round(options["warmdown_ratio"] * n_steps),
            options["final_lr_frac"],
        )
        self.weight_decay = options["weight_decay"] * self.batch_scale * self.size_scale
        self.optimizer = self.model.setup_optimizer(
            unembedding_lr=options["unembedding_lr"] * scale,
            embedding_lr=options["embedding_lr"] * scale,
            scalar_lr=options["scalar_lr"] * scale,
            matrix_lr=options["matrix_lr"] * scale,
            weight_decay=self.weight_decay,
        )

    def step(self, step: int, x_BT: Tensor, y_BT: Tensor) -> float:
        loss = self.forward(x_BT, y_BT)
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.schedule.lr_scale(step)
            if group["kind"] == "muon":
                group["momentum"] = self.schedule.momentum(step)
                group["weight_decay"] = self.weight_decay * self.schedule.decay_scale(step)
        self.optimizer.step()
        self.model.zero_grad(set_to_none=True)
        if step == 0:  # as base_train.py does, to save the collector's time
            gc.collect()
            gc.freeze()
            gc.disable()
        return loss.item()

    def loss(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        return self.forward(x_BT, y_BT)


@dataclass(frozen=True)
class Schedule:
    """What base_train.py changes with the step, counted from 0; lengths in steps."""

    n_steps: int
    warmup: int
    warmdown: int
    final_lr: float

    def lr_scale(self, step: int) -> float:
        """`get_lr_multiplier`: linear warm-up, constant, linear warm-down to `final_lr`."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if step <= self.n_steps - self.warmdown:
            return 1.0
        left = (self.n_steps - step) / self.warmdown
        return left + (1 - left) * self.final_lr

    def momentum(self, step: int) -> float:
        """`get_muon_momentum`: a ramp up, and down again during the warm-down."""
        if step < MOMENTUM_RAMP:
            ramped = step / MOMENTUM_RAMP
            return (1 - ramped) * MOMENTUM_FIRST + ramped * MOMENTUM
        down = max(0.0, (step - (self.n_steps - self.warmdown)) / self.warmdown)
        return (1 - down) * MOMENTUM + down * MOMENTUM_LAST

    def decay_scale(self, step: int) -> float:
        """`get_weight_decay` over its start: half a cosine to zero."""
        return 0.5 * (1 + math.cos(math.pi * step / self.n_steps))


def _scaling_params(model: torch.nn.Module) -> int:
    """Parameters as base_train.py counts them for its horizons: the matrices of the blocks, and the head."""
    counts = model.num_scaling_params()
    return counts["transformer_matrices"] + counts["lm_head"]
