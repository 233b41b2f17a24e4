"""The transformer: decoder-only, pre-norm, without biases or learned gains; the recipe has its switches.

Shape suffixes: B batch, T time, D model width, H query heads, K key/value heads, S head size, V vocabulary,
N all tokens of a batch, B * T.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from x1_pretrain.attention import Library, Mask, Window, attend, available, rope_tables, rotate
from x1_pretrain.cross_entropy import Reduction, linear_cross_entropy, softcapped
from x1_pretrain.embedding import Embedding, rms_norm
from x1_pretrain.errors import UserError
from x1_pretrain.shape import ModelShape, Recipe, mlp_width

EMBEDDING_STD = 0.02  # of every look-up table, whatever the width
MUP_HEAD_SIZE = 64  # with muP, attention is scaled as without it at this head size

# Where the learned scalars and gains start: the token shift and the shortcut at the model without them, the
# value residual at half and half, the value embeddings, whose tables start small, at what is looked up.
SCALARS = {
    "token_shift": 0.0,
    "residual_scale": 1.0,
    "shortcut_scale": 0.0,
    "first_value_share": 0.5,
    "value_embedding_scale": 1.0,
}


@dataclass(frozen=True)
class Sequence:
    """What every block needs to know of the tokens it works on."""

    tokens: Tensor  # [B, T]
    embedded: Tensor  # [B, T, D]
    rope: tuple[Tensor, Tensor] | None  # cos and sin, each [T, S / 2]
    library: Library
    mask: Mask
    # What puts the keys and values of earlier tokens before new ones; none in training, see inference/.
    remember: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None


class Attention(nn.Module):
    """Causal attention with grouped key/value heads (Ainslie et al. 2023)."""

    def __init__(self, shape: ModelShape, recipe: Recipe, n_vocab: int, layer: int) -> None:
        super().__init__()
        self.n_head, self.n_kv_head = shape.n_head, shape.n_kv_head
        self.head_size = shape.d_model // shape.n_head
        self.qk_norm = recipe.qk_norm
        # q and k grow alike in training, so that q k^T goes with S and not with its root (Yang et al. 2022,
        # table 8). That also holds with QK-norm, whose bound on the logits is scale * S.
        self.scale = math.sqrt(MUP_HEAD_SIZE) / self.head_size if recipe.mup else None
        kv_width = self.n_kv_head * self.head_size
        self.qkv_widths = [shape.d_model, kv_width, kv_width]
        self.qkv = nn.Linear(shape.d_model, sum(self.qkv_widths), bias=False)
        self.projection = nn.Linear(shape.d_model, shape.d_model, bias=False)
        self.first_value_share = self.value_embedding = None
        if recipe.value_residual and layer > 0:
            self.first_value_share = nn.Parameter(torch.empty(()))
        if recipe.value_embeddings and (shape.n_layer - 1 - layer) % 2 == 0:
            self.value_embedding = nn.Embedding(n_vocab, kv_width)
            self.value_embedding_scale = nn.Parameter(torch.empty(()))

    def forward(
        self, x_BTD: Tensor, sequence: Sequence, first_v_BTKS: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What is added to the residual stream, and the values, which the first layer's successors get."""
        B, T, D = x_BTD.shape
        q, k, v = self.qkv(x_BTD).split(self.qkv_widths, dim=-1)
        q_BTHS = q.view(B, T, self.n_head, self.head_size)
        k_BTKS = k.view(B, T, self.n_kv_head, self.head_size)
        v_BTKS = own_v_BTKS = v.view(B, T, self.n_kv_head, self.head_size)
        if self.first_value_share is not None:  # ResFormer (Zhou et al. 2024)
            v_BTKS = v_BTKS.lerp(first_v_BTKS, self.first_value_share)
        if self.value_embedding is not None:  # modded-nanogpt (Jordan et al. 2024), nanochat
            looked_up = self.value_embedding_scale * self.value_embedding(sequence.tokens)
            v_BTKS = v_BTKS + looked_up.view_as(v_BTKS).to(v_BTKS.dtype)
        if self.qk_norm:  # bounds the attention logits (Dehghani et al. 2023)
            q_BTHS, k_BTKS = rms_norm(q_BTHS), rms_norm(k_BTKS)
        if sequence.rope is not None:
            q_BTHS, k_BTKS = rotate(q_BTHS, *sequence.rope), rotate(k_BTKS, *sequence.rope)
        if sequence.remember is not None:
            k_BTKS, v_BTKS = sequence.remember(k_BTKS, v_BTKS)
        y_BTHS = attend(q_BTHS, k_BTKS, v_BTKS, sequence.library, sequence.mask, self.scale)
        return self.projection(y_BTHS.reshape(B, T, D)), own_v_BTKS


class MLP(nn.Module):
    """Two matrices, ratio 4; ReLU^2 (So et al. 2021) costs less than GELU and does no worse.

    SwiGLU (Shazeer 2020) has a third matrix, and a width that keeps the parameters about as many.
    """

    def __init__(self, shape: ModelShape, recipe: Recipe) -> None:
        super().__init__()
        self.activation = recipe.activation
        width = mlp_width(shape.d_model, recipe.activation)
        self.up = nn.Linear(shape.d_model, width, bias=False)
        self.gate = nn.Linear(shape.d_model, width, bias=False) if recipe.activation == "swiglu" else None
        self.down = nn.Linear(width, shape.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h = self.up(x_BTD)
        if self.gate is not None:
            h = F.silu(self.gate(x_BTD)) * h
        else:
            h = F.relu(h).square() if self.activation == "relu2" else F.gelu(h)
        return self.down(h)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    With the embedding shortcut (modded-nanogpt, Jordan et al. 2024) x is first a learned sum of the residual
    stream and the embedding.
    """

    def __init__(self, shape: ModelShape, recipe: Recipe, n_vocab: int, layer: int) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(shape, recipe, n_vocab, layer), MLP(shape, recipe)
        self.shortcut = recipe.embedding_shortcut
        if self.shortcut:
            self.residual_scale = nn.Parameter(torch.empty(()))
            self.shortcut_scale = nn.Parameter(torch.empty(()))

    def forward(
        self, x_BTD: Tensor, sequence: Sequence, first_v_BTKS: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.shortcut:
            x_BTD = self.residual_scale * x_BTD + self.shortcut_scale * sequence.embedded
        y_BTD, v_BTKS = self.attention(rms_norm(x_BTD), sequence, first_v_BTKS)
        x_BTD = x_BTD + y_BTD
        return x_BTD + self.mlp(rms_norm(x_BTD)), v_BTKS


class GPT(nn.Module):
    """Token ids [B, T] to logits [B, T, V]. T may be anything up to seq_len.

    `base_width` is the width at which muP changes no learning rate and no readout, d_model unless given.
    Raises `UserError` if the attention asked for cannot be had here.
    """

    def __init__(
        self,
        shape: ModelShape,
        recipe: Recipe,
        n_vocab: int,
        seq_len: int,
        base_width: int | None = None,
        attention: Library = "sdpa",
        gradient_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        if reason := available(attention):
            raise UserError(f"device.attention: {reason}; use sdpa")
        self.shape, self.recipe, self.n_vocab, self.seq_len = shape, recipe, n_vocab, seq_len
        self.library, self.gradient_checkpointing = attention, gradient_checkpointing
        self.mup_scale = (base_width or shape.d_model) / shape.d_model if recipe.mup else 1.0
        self.embedding = Embedding(shape, recipe, n_vocab, seq_len)
        self.blocks = nn.ModuleList(Block(shape, recipe, n_vocab, i) for i in range(shape.n_layer))
        self.head = nn.Linear(shape.d_model, n_vocab, bias=False)
        if recipe.tied_head:
            self.head.weight = self.embedding.token.weight
        cos_TS, sin_TS = rope_tables(seq_len, shape.d_model // shape.n_head)
        self.register_buffer("cos_TS", cos_TS, persistent=False)
        self.register_buffer("sin_TS", sin_TS, persistent=False)
        self.window = Window(seq_len, movable=recipe.window_warmup)

    @torch.no_grad()
    def initialise(self, seed: int) -> "GPT":
        """Weights from a generator of their own, so that no global RNG moves.

        Matrices are uniform with variance 1/fan_in; with `zero_init` every block starts as the identity
        and the logits start at zero (Yang et al. 2022, muP's readout). An untied head of muP that does not
        start at zero has variance base_width / d_model^2 (their table 3).
        """
        generator = torch.Generator().manual_seed(seed)
        tables = {id(module.weight) for module in self.modules() if isinstance(module, nn.Embedding)}
        for name, weight in self.named_parameters():
            if weight.ndim < 2:
                weight.fill_(SCALARS[name.rpartition(".")[2]])
            elif id(weight) in tables:
                weight.normal_(std=EMBEDDING_STD, generator=generator)
            elif self.recipe.zero_init and name.endswith(("projection.weight", "down.weight", "head.weight")):
                weight.zero_()
            else:
                bound = math.sqrt(3.0 / weight.size(1))
                weight.uniform_(-bound, bound, generator=generator)
                if name == "head.weight":
                    weight.mul_(math.sqrt(self.mup_scale))
        return self

    def set_window(self, window: int | None) -> None:
        """Let attention reach back `window` tokens, the present one included; None for all of them.

        Raises `ValueError` for a number unless the recipe has `window_warmup`.
        """
        self.window.set(window)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return softcapped(self.head(self._hidden(tokens_BT)), self.recipe.logit_softcap)

    def loss(self, tokens_BT: Tensor, targets_BT: Tensor, reduction: Reduction = "mean") -> Tensor:
        """Cross-entropy in nats per token, computed in fp32; "none" gives [B * T].

        With a z-loss the value is still the cross-entropy and only the gradient has the z-loss.
        """
        x_ND = self._hidden(tokens_BT).flatten(0, 1)
        softcap, z_loss = self.recipe.logit_softcap, self.recipe.z_loss
        return linear_cross_entropy(x_ND, self.head.weight, targets_BT.flatten(), reduction, softcap, z_loss)

    def _hidden(self, tokens_BT: Tensor) -> Tensor:
        """What the head reads, [B, T, D]."""
        T = tokens_BT.size(1)
        x_BTD = self.embedding(tokens_BT)
        rope = (self.cos_TS[:T], self.sin_TS[:T]) if self.recipe.position == "rope" else None
        sequence = Sequence(tokens_BT, x_BTD, rope, self.library, self.window.mask(self.library, T))
        first_v_BTKS = None
        for block in self.blocks:
            run = block
            if self.gradient_checkpointing and torch.is_grad_enabled():  # nothing in a block is random
                run = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False)
            x_BTD, v_BTKS = run(x_BTD, sequence, first_v_BTKS)
            first_v_BTKS = v_BTKS if first_v_BTKS is None else first_v_BTKS
        return self.readout(x_BTD)

    def readout(self, x_BTD: Tensor) -> Tensor:
        """What the head reads of what the last block leaves.

        A tied head trains at the embedding's lr, so that muP's factor is on what it reads (table 8); an
        untied one has it on its lr and its start (table 3). Adam makes the two the same.
        """
        x_BTD = rms_norm(x_BTD)
        return x_BTD * self.mup_scale if self.recipe.mup and self.recipe.tied_head else x_BTD

    def N(self) -> int:
        """Non-embedding parameters: the matrices of the blocks, exactly."""
        return sum(m.weight.numel() for m in self.blocks.modules() if isinstance(m, nn.Linear))

    def n_params(self) -> int:
        """All parameters, embeddings and head included (a tied head counts once)."""
        return sum(p.numel() for p in self.parameters())
