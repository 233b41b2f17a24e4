"""The peer's side of a contest: its model and optimizer on our batches, timed as ours are."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from contest.nanochat import NanoChat
from contest.nanogpt import NanoGPT
from contest.peer_source import source_sha256
from contest.terms import Data, Terms

PEERS = {"nanogpt": NanoGPT, "nanochat": NanoChat}
WARM_STEPS = 2  # before a timed block: caches, and the optimizer's state


class Peer(Protocol):
    """A peer's training, step by step. `files`: what of the checkout decides the result."""

    files: tuple[str, ...]
    model: nn.Module

    def begin(self, lr: float, n_steps: int) -> None:
        """A new optimizer for a run of `n_steps` steps; the weights are the caller's."""

    def step(self, step: int, x_BT: Tensor, y_BT: Tensor) -> float:
        """One optimizer step, counted from 0; the batch's loss in nats per token."""

    def loss(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        """Mean loss in nats per token, by the graph that training uses."""


@dataclass(frozen=True)
class PeerRun:
    """One lr: validation loss at the end, in nats per token, and seconds.

    `step_s` is the mean over all steps but the first, which is `first_step_s` and has the compilation in it
    for the first lr that runs.
    """

    lr: float
    loss_nats: float
    step_s: float
    first_step_s: float
    evaluation_s: float


class PeerSide:
    """Every run starts from the same weights, in the same tensors: nothing is compiled twice."""

    def __init__(self, kind: str, checkout: Path, terms: Terms) -> None:
        torch.set_num_threads(terms.threads)
        self.data = Data(terms)
        self.peer: Peer = PEERS[kind](checkout, terms, self.data.n_vocab)
        self.sha256 = source_sha256(checkout, self.peer.files)
        self.first_weights = {name: value.clone() for name, value in self.peer.model.state_dict().items()}

    def facts(self) -> dict[str, str | int]:
        """Which version of the peer this is, and how many parameters its model has."""
        n_params = sum(parameter.numel() for parameter in self.peer.model.parameters())
        return {"source_sha256": self.sha256, "n_params": n_params}

    def run(self, lr: float, n_steps: int) -> PeerRun:
        """Train from the first weights for exactly `n_steps`, then evaluate."""
        self._begin(lr, n_steps)
        first_step_s = self._steps(0, 1)
        step_s = self._steps(1, n_steps) / max(1, n_steps - 1)
        clock = time.perf_counter()
        losses = [(self.peer.loss(x, y).item(), x.numel()) for x, y in self.data.validation()]
        n_tokens = sum(n for _, n in losses)
        loss_nats = math.fsum(loss * n for loss, n in losses) / n_tokens
        return PeerRun(lr, loss_nats, step_s, first_step_s, time.perf_counter() - clock)

    def time_steps(self, lr: float, n_steps: int) -> float:
        """Mean seconds of a step over a block of steps, loading the batch included."""
        self._begin(lr, WARM_STEPS + n_steps)
        self._steps(0, WARM_STEPS)
        return self._steps(WARM_STEPS, WARM_STEPS + n_steps) / n_steps

    def _begin(self, lr: float, n_steps: int) -> None:
        self.peer.model.load_state_dict(self.first_weights)
        self.peer.begin(lr, n_steps)

    def _steps(self, first: int, end: int) -> float:
        """Seconds of the steps [first, end)."""
        clock = time.perf_counter()
        for step in range(first, end):
            self.peer.step(step, *self.data.batch(step))
        return time.perf_counter() - clock
