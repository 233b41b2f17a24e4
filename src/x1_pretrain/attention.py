"""Causal attention with a window, computed by one of three libraries that must agree.

`sdpa` is torch's own and runs everywhere; `flash` is the flash-attn package (Dao 2023), `flex` is torch's
FlexAttention (He et al. 2024): both can leave out what the window masks, where SDPA computes and discards.
Query i sees the keys j with i - window < j <= i: `window` tokens, itself included.
"""

import importlib.util
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from x1_pretrain.errors import UserError

Library = Literal["sdpa", "flash", "flex"]
Mask = Tensor | BlockMask | int | None
ROPE_BASE = 10_000.0


def rope_tables(seq_len: int, head_size: int) -> tuple[Tensor, Tensor]:
    """cos and sin of the rotation angles, each [seq_len, head_size / 2] (Su et al. 2021, eq. 15)."""
    frequency = ROPE_BASE ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angle = torch.outer(torch.arange(seq_len, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


def rotate(x_BTHS: Tensor, cos_TS: Tensor, sin_TS: Tensor) -> Tensor:
    """Rotate pairs (first half, second half) of the head dimension by position."""
    cos, sin = cos_TS[:, None, :].to(x_BTHS.dtype), sin_TS[:, None, :].to(x_BTHS.dtype)
    first, second = x_BTHS.chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1)


def available(attention: str) -> str | None:
    """None if training can use it here, or why not, ready to follow "device.attention: "."""
    if attention == "sdpa":
        return None
    if attention == "flash" and importlib.util.find_spec("flash_attn") is None:
        return "flash needs the package flash-attn (pip install 'x1-pretrain[gpu]'), which is not installed"
    if not torch.cuda.is_available():
        return f"{attention} trains on a GPU only and torch sees none"
    return None


class Window(nn.Module):
    """How many tokens attention reaches back; `set` changes it without changing a compiled graph.

    The mask is computed from the buffer inside the graph. Only flash-attn wants a plain number, so that with
    it there is one graph for each window. A window that is not `movable` is all of the sequence, always.
    """

    def __init__(self, seq_len: int, movable: bool) -> None:
        super().__init__()
        self.seq_len, self.movable = seq_len, movable
        self.n_keys = seq_len
        self.register_buffer("keys", torch.tensor(seq_len), persistent=False)

    def set(self, window: int | None) -> None:
        """None is all of the sequence. Raises `ValueError` for another window where that cannot be."""
        if window is not None and not (self.movable and window >= 1):
            need = "be at least 1" if self.movable else "be None without recipe.window_warmup"
            raise ValueError(f"window: {window} must {need}")
        self.n_keys = self.seq_len if window is None else min(window, self.seq_len)
        self.keys.fill_(self.n_keys)

    def mask(self, library: Library, T: int) -> Mask:
        """What `attend` needs to know of the window, for sequences of T tokens."""
        if not self.movable and library != "flex":
            return None
        if library == "flash":
            return self.n_keys
        keys = self.keys

        def visible(batch: Tensor | None, head: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (key > query - keys)

        if library == "flex":
            return create_block_mask(visible, None, None, T, T, device=keys.device)
        position_T = torch.arange(T, device=keys.device)
        return visible(None, None, position_T[:, None], position_T)


def attend(
    q_BTHS: Tensor,
    k_BTKS: Tensor,
    v_BTKS: Tensor,
    library: Library,
    mask: Mask = None,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale * q k^T) v over the visible keys, [B, T, H, S]; a key/value head serves H / K heads.

    `mask` is that of `Window.mask` for the same library; `scale` is 1 / sqrt(S) unless given.
    Raises `UserError` if flash-attn is asked to compute in fp32.
    """
    q_BTHS, k_BTKS = q_BTHS.to(v_BTKS.dtype), k_BTKS.to(v_BTKS.dtype)
    if library == "flash":
        return _flash(q_BTHS, k_BTKS, v_BTKS, mask, scale)
    heads = [x.transpose(1, 2) for x in (q_BTHS, k_BTKS, v_BTKS)]
    grouped = q_BTHS.size(2) != k_BTKS.size(2)
    if library == "flex":
        y_BHTS = flex_attention(*heads, block_mask=mask, scale=scale, enable_gqa=grouped)
    else:
        y_BHTS = F.scaled_dot_product_attention(
            *heads, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
        )
    return y_BHTS.transpose(1, 2)


def _flash(q_BTHS: Tensor, k_BTKS: Tensor, v_BTKS: Tensor, window: int | None, scale: float | None) -> Tensor:
    from flash_attn import flash_attn_func  # a package for CUDA only, and only where it is chosen

    if v_BTKS.dtype == torch.float32:
        raise UserError(
            "device.attention: flash does not compute in fp32; use sdpa, or device.precision: bf16"
        )
    # flash-attn counts the keys before the query's own; -1 is no limit, which has a faster kernel.
    before = -1 if window is None or window >= q_BTHS.size(1) else window - 1
    return flash_attn_func(
        q_BTHS,
        k_BTKS,
        v_BTKS,
        softmax_scale=scale,
        causal=True,
        window_size=(before, 0 if before >= 0 else -1),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
