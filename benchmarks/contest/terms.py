"""What is equal for both sides of a contest: the data, in one order, the shape, and the machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from x1_pretrain.corpus.loader import Tokens, TrainLoader, validation_windows


@dataclass(frozen=True)
class Terms:
    """A decoder of `n_layer` x `d_model` with full multi-head attention, and what it is trained on.

    A step reads `batch_sequences` sequences of `seq_len` tokens, undivided; `val_tokens` are the same first
    tokens of the validation split for everyone. `precision` is for a side that can choose.
    """

    tokens: Path
    n_layer: int
    d_model: int
    n_head: int
    seq_len: int
    batch_sequences: int
    val_tokens: int
    seed: int
    threads: int
    precision: str
    compile: bool

    @property
    def batch_tokens(self) -> int:
        """Tokens per optimizer step."""
        return self.batch_sequences * self.seq_len


class Data:
    """The project's own loader as every side reads it: `batch(step)` and `validation()`."""

    def __init__(self, terms: Terms) -> None:
        self.tokens = Tokens(terms.tokens)
        self.n_vocab = self.tokens.n_vocab
        self.batch_sequences = terms.batch_sequences
        self.loader = TrainLoader(self.tokens, terms.seq_len, terms.batch_sequences, terms.seed)
        self.windows = torch.from_numpy(validation_windows(self.tokens, terms.seq_len, terms.val_tokens))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, int64 [B, T], of a step counted from 0."""
        return _shifted(torch.from_numpy(self.loader.batch(step)))

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The validation windows in batches of the training's shape, so that one compiled graph serves."""
        for windows in self.windows.split(self.batch_sequences):
            yield _shifted(windows)


def _shifted(windows: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T+1] to inputs and targets [B, T]; contiguous, for a peer may call `view` on them."""
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
