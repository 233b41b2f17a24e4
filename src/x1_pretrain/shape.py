"""What a model is: its sizes, the switches of its recipe, and how many parameters that makes."""

from dataclasses import dataclass
from typing import Literal

from x1_pretrain.limits import Count, Positive, hold_limits

MLP_RATIO = 4
SWIGLU_MULTIPLE = 8  # hidden widths that matmul units like


def mlp_width(d_model: int, activation: str) -> int:
    """Hidden width of the MLP: 4 d, or for SwiGLU, which has a third matrix, 8/3 d to the nearest 8.

    Two thirds keep the parameters at about 8 d^2 (Shazeer 2020, section 3).
    """
    if activation == "swiglu":
        return max(1, round(2 * MLP_RATIO * d_model / (3 * SWIGLU_MULTIPLE))) * SWIGLU_MULTIPLE
    return MLP_RATIO * d_model


def matmul_params_per_layer(d_model: int, n_head: int, n_kv_head: int, activation: str = "relu2") -> int:
    """Weights of a block: q, o (d x d), k, v (d x n_kv_head * head size), MLP up, down and SwiGLU's gate."""
    head_size = d_model // n_head
    mlp_matrices = 3 if activation == "swiglu" else 2
    mlp = mlp_matrices * d_model * mlp_width(d_model, activation)
    return 2 * d_model**2 + 2 * d_model * n_kv_head * head_size + mlp


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer and the FLOPs (C = 6ND) it is trained with."""

    n_layer: Count
    d_model: Count
    n_head: Count
    n_kv_head: Count
    flops: Positive

    def __post_init__(self) -> None:
        hold_limits(self)
        if self.d_model % self.n_head or (self.d_model // self.n_head) % 2:
            valid = [
                h for h in range(1, self.d_model + 1) if self.d_model % h == 0 and self.d_model // h % 2 == 0
            ]
            raise ValueError(
                f"d_model {self.d_model} over n_head {self.n_head} is not an even head size; "
                f"n_head may be {', '.join(map(str, valid)) or 'nothing: make d_model even'}"
            )
        if self.n_head % self.n_kv_head:
            valid = [h for h in range(1, self.n_head + 1) if self.n_head % h == 0]
            raise ValueError(
                f"n_kv_head {self.n_kv_head} does not divide n_head {self.n_head}; "
                f"it may be {', '.join(map(str, valid))}"
            )

    @property
    def N(self) -> int:
        """Non-embedding parameters: 12 L d^2 when n_kv_head = n_head (MLP ratio 4, no biases)."""
        return self.N_of("relu2")

    def N_of(self, activation: str) -> int:
        """The same with another activation: SwiGLU's three matrices are not exactly as many weights."""
        sizes = (self.d_model, self.n_head, self.n_kv_head)
        return self.n_layer * matmul_params_per_layer(*sizes, activation)


@dataclass(frozen=True)
class Recipe:
    """The switches people flip with `-S recipe.<name>=...`; one set for every run of a study."""

    optimizer: Literal["muon", "adamw"]
    schedule: Literal["wsd", "cosine"]
    batch_ramp: bool
    activation: Literal["relu2", "swiglu", "gelu"]
    position: Literal["rope", "learned"]
    token_shift: bool
    bigram_rows: Count | None
    qk_norm: bool
    value_residual: bool
    value_embeddings: bool
    embedding_shortcut: bool
    window_warmup: bool
    zero_init: bool
    tied_head: bool
    logit_softcap: Positive | None
    z_loss: Positive | None
    mup: bool
