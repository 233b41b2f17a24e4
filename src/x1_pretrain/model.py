"""The transformer: decoder-only, pre-norm, RoPE, QK-norm, ReLU^2, zero-initialised projections.

Shape suffixes: B batch, T time, D model width, H query heads, K key/value heads, S head size, V vocabulary.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from x1_pretrain.config import ModelShape, Recipe

ROPE_BASE = 10_000.0


def rms_norm(x: Tensor) -> Tensor:
    """RMSNorm without a learned gain: the matrices that follow can learn one."""
    return F.rms_norm(x, (x.size(-1),))


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


class Attention(nn.Module):
    """Causal attention with grouped key/value heads (Ainslie et al. 2023)."""

    def __init__(self, shape: ModelShape, recipe: Recipe) -> None:
        super().__init__()
        self.n_head, self.n_kv_head = shape.n_head, shape.n_kv_head
        self.head_size = shape.d_model // shape.n_head
        self.qk_norm = recipe.qk_norm
        kv_width = self.n_kv_head * self.head_size
        self.qkv_widths = [shape.d_model, kv_width, kv_width]
        self.qkv = nn.Linear(shape.d_model, sum(self.qkv_widths), bias=False)
        self.projection = nn.Linear(shape.d_model, shape.d_model, bias=False)

    def forward(self, x_BTD: Tensor, cos_TS: Tensor, sin_TS: Tensor) -> Tensor:
        B, T, D = x_BTD.shape
        q, k, v = self.qkv(x_BTD).split(self.qkv_widths, dim=-1)
        q_BTHS = q.view(B, T, self.n_head, self.head_size)
        k_BTKS = k.view(B, T, self.n_kv_head, self.head_size)
        v_BTKS = v.view(B, T, self.n_kv_head, self.head_size)
        if self.qk_norm:  # bounds the attention logits (Dehghani et al. 2023)
            q_BTHS, k_BTKS = rms_norm(q_BTHS), rms_norm(k_BTKS)
        q_BTHS, k_BTKS = rotate(q_BTHS, cos_TS, sin_TS), rotate(k_BTKS, cos_TS, sin_TS)
        y_BHTS = F.scaled_dot_product_attention(
            q_BTHS.transpose(1, 2),
            k_BTKS.transpose(1, 2),
            v_BTKS.transpose(1, 2),
            is_causal=True,
            enable_gqa=self.n_kv_head != self.n_head,
        )
        return self.projection(y_BHTS.transpose(1, 2).reshape(B, T, D))


class MLP(nn.Module):
    """Two matrices, ratio 4; ReLU^2 (So et al. 2021) costs less than GELU and does no worse."""

    def __init__(self, shape: ModelShape, recipe: Recipe) -> None:
        super().__init__()
        self.activation = recipe.activation
        self.up = nn.Linear(shape.d_model, 4 * shape.d_model, bias=False)
        self.down = nn.Linear(4 * shape.d_model, shape.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h = self.up(x_BTD)
        h = F.relu(h).square() if self.activation == "relu2" else F.gelu(h)
        return self.down(h)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, shape: ModelShape, recipe: Recipe) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(shape, recipe), MLP(shape, recipe)

    def forward(self, x_BTD: Tensor, cos_TS: Tensor, sin_TS: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(rms_norm(x_BTD), cos_TS, sin_TS)
        return x_BTD + self.mlp(rms_norm(x_BTD))


class GPT(nn.Module):
    """Token ids [B, T] to logits [B, T, V]. T may be anything up to seq_len."""

    def __init__(self, shape: ModelShape, recipe: Recipe, n_vocab: int, seq_len: int) -> None:
        super().__init__()
        self.shape, self.recipe, self.n_vocab, self.seq_len = shape, recipe, n_vocab, seq_len
        self.embedding = nn.Embedding(n_vocab, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape, recipe) for _ in range(shape.n_layer))
        self.head = nn.Linear(shape.d_model, n_vocab, bias=False)
        if recipe.tied_head:
            self.head.weight = self.embedding.weight
        cos_TS, sin_TS = rope_tables(seq_len, shape.d_model // shape.n_head)
        self.register_buffer("cos_TS", cos_TS, persistent=False)
        self.register_buffer("sin_TS", sin_TS, persistent=False)

    @torch.no_grad()
    def initialise(self, seed: int) -> "GPT":
        """Weights from a generator of their own, so that no global RNG moves.

        Matrices are uniform with variance 1/fan_in; with `zero_init` every block starts as the identity
        and the logits start at zero (Yang et al. 2022, muP's readout).
        """
        generator = torch.Generator().manual_seed(seed)
        for name, weight in self.named_parameters():
            if name == "embedding.weight":
                weight.normal_(std=0.02, generator=generator)
            elif self.recipe.zero_init and name.endswith(("projection.weight", "down.weight", "head.weight")):
                weight.zero_()
            else:
                bound = math.sqrt(3.0 / weight.size(1))
                weight.uniform_(-bound, bound, generator=generator)
        return self

    def forward(self, tokens_BT: Tensor) -> Tensor:
        T = tokens_BT.size(1)
        x_BTD = rms_norm(self.embedding(tokens_BT))
        for block in self.blocks:
            x_BTD = block(x_BTD, self.cos_TS[:T], self.sin_TS[:T])
        return self.head(rms_norm(x_BTD))

    def loss(
        self,
        tokens_BT: Tensor,
        targets_BT: Tensor,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> Tensor:
        """Cross-entropy in nats per token, computed in fp32; "none" gives [B * T]."""
        logits_BTV = self(tokens_BT)
        return F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), reduction=reduction)

    def n_params(self) -> int:
        """All parameters, embeddings and head included (a tied head counts once)."""
        return sum(p.numel() for p in self.parameters())
