"""Text, one token at a time: which token follows, and what happens when the context is full."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from x1_pretrain.errors import UserError
from x1_pretrain.inference.kv_cache import KVCache, logits_of, read
from x1_pretrain.model import GPT

Pick = Callable[[Tensor], Tensor]


def greedy(logits_BV: Tensor) -> Tensor:
    """The likeliest token of each sequence, [B]."""
    return logits_BV.argmax(-1)


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn: among the `top_k` likeliest (all if None), at `temperature` (0: greedy).

    Raises `UserError` for what cannot be.
    """

    temperature: float
    top_k: int | None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UserError(
                f"--temperature: {self.temperature} is not a temperature; use 0 for the likeliest token each "
                "time, or a finite number above 0 such as 0.8"
            )
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"--top-k: {self.top_k} leaves no token; use 1 or more, or leave it out for all")

    def with_seed(self, seed: int) -> Pick:
        """A function from logits [B, V] to ids [B] that draws from a generator of its own."""
        generator = torch.Generator().manual_seed(seed)

        def pick(logits_BV: Tensor) -> Tensor:
            if self.temperature == 0:
                return greedy(logits_BV)
            # The likeliest gets 0 first, so that a tiny temperature gives -inf for the rest and no NaN.
            scores_BV = logits_BV.float().cpu()
            scores_BV = (scores_BV - scores_BV.amax(-1, keepdim=True)) / self.temperature
            best = scores_BV.topk(min(self.top_k or scores_BV.size(-1), scores_BV.size(-1)))
            drawn_B1 = torch.multinomial(best.values.softmax(-1), 1, generator=generator)
            return best.indices.gather(1, drawn_B1)[:, 0].to(logits_BV.device)

        return pick


@torch.no_grad()
def continuation(model: GPT, prompt_BT: Tensor, pick: Pick) -> Iterator[Tensor]:
    """Ids [B] that follow a prompt of 1 to seq_len tokens, without end.

    When the context is full, its later half is read afresh and goes on from there.
    """
    context_BT, unread_BT = prompt_BT, prompt_BT
    cache = KVCache(model, prompt_BT.size(0), model.seq_len)
    while True:
        x_BTD = read(model, unread_BT, cache)
        next_B = pick(logits_of(model, x_BTD[:, -1:])[:, 0])
        yield next_B
        unread_BT = next_B[:, None]
        context_BT = torch.cat((context_BT, unread_BT), dim=1)
        if cache.length == model.seq_len:
            unread_BT = context_BT = context_BT[:, -max(1, model.seq_len // 2) :]
            cache = KVCache(model, prompt_BT.size(0), model.seq_len)
