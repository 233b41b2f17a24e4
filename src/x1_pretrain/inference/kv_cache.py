"""Keys and values of the tokens already read, so that the next token is one token's work.

The blocks are those of training (`model.py`): they are handed a way to remember, and all of their switches
hold. Only what `GPT._hidden` does around the blocks is done again here, for tokens that do not begin at 0.
"""

from dataclasses import replace

import torch
from torch import Tensor

from x1_pretrain.cross_entropy import softcapped
from x1_pretrain.embedding import LOOKS_BACK
from x1_pretrain.model import GPT, Sequence


class LayerCache:
    """What one block remembers of up to `capacity` tokens of B sequences: keys and values, [B, T, K, S]."""

    def __init__(self, model: GPT, batch: int, capacity: int) -> None:
        head_size = model.shape.d_model // model.shape.n_head
        sizes = (batch, capacity, model.shape.n_kv_head, head_size)
        self.k_BTKS = torch.zeros(sizes, dtype=model.embedding.token.weight.dtype, device=model.cos_TS.device)
        self.v_BTKS = torch.zeros_like(self.k_BTKS)
        self.length = 0

    def extend(self, k_BTKS: Tensor, v_BTKS: Tensor) -> tuple[Tensor, Tensor]:
        """Keep new keys and values; return all, the new ones last."""
        begin, self.length = self.length, self.length + k_BTKS.size(1)
        self.k_BTKS[:, begin : self.length] = k_BTKS
        self.v_BTKS[:, begin : self.length] = v_BTKS
        return self.k_BTKS[:, : self.length], self.v_BTKS[:, : self.length]


class KVCache:
    """The caches of all blocks; `length` tokens of `capacity` are read."""

    def __init__(self, model: GPT, batch: int, capacity: int) -> None:
        self.capacity = capacity
        self.layers = [LayerCache(model, batch, capacity) for _ in model.blocks]
        self.tail_BT = torch.empty(
            (batch, 0), dtype=torch.long, device=model.cos_TS.device
        )  # last tokens read

    @property
    def length(self) -> int:
        return self.layers[0].length

    @property
    def n_bytes(self) -> int:
        """Memory that the keys and values occupy, filled or not."""
        held = (tensor for layer in self.layers for tensor in (layer.k_BTKS, layer.v_BTKS))
        return sum(tensor.untyped_storage().nbytes() for tensor in held)


def read(model: GPT, tokens_BT: Tensor, cache: KVCache) -> Tensor:
    """What the head reads for the next T tokens, [B, T, D]; the cache then holds them too.

    Equal to the last T of the same model without a cache, up to rounding. Raises `ValueError` if the cache,
    or the context that the model was trained with, is too short for them.
    """
    begin, end = cache.length, cache.length + tokens_BT.size(1)
    if end > min(cache.capacity, model.seq_len):
        raise ValueError(f"{end} tokens exceed the cache of {cache.capacity} or context of {model.seq_len}")
    known_BT = torch.cat((cache.tail_BT, tokens_BT), dim=1)  # an embedding looks back
    n_tail, cache.tail_BT = cache.tail_BT.size(1), known_BT[:, -LOOKS_BACK:]
    x_BTD = model.embedding(known_BT, begin - n_tail)[:, n_tail:]
    rope = (model.cos_TS[begin:end], model.sin_TS[begin:end]) if model.recipe.position == "rope" else None
    sequence = Sequence(tokens_BT, x_BTD, rope, "sdpa", _mask(model, begin, end))
    first_v_BTKS = None
    for block, layer in zip(model.blocks, cache.layers, strict=True):
        x_BTD, v_BTKS = block(x_BTD, replace(sequence, remember=layer.extend), first_v_BTKS)
        first_v_BTKS = v_BTKS if first_v_BTKS is None else first_v_BTKS
    return model.readout(x_BTD)


def logits_of(model: GPT, x_BTD: Tensor) -> Tensor:
    """[B, T, V] of what `read` returned."""
    return softcapped(model.head(x_BTD), model.recipe.logit_softcap)


def _mask(model: GPT, begin: int, end: int) -> Tensor | None:
    """Which of the keys 0 .. end - 1 the queries begin .. end - 1 see; none for plain causal attention."""
    window = model.window.n_keys
    if begin == 0 and window >= end:
        return None
    key_T = torch.arange(end, device=model.cos_TS.device)
    query_T1 = key_T[begin:, None]
    return (key_T <= query_T1) & (key_T > query_T1 - window)
