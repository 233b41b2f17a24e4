"""FLOPs of a decoder-only transformer, counted one way everywhere: dollars, MFU and C hang on it.

Convention (PaLM, Chowdhery et al. 2022, appendix B): only matrix multiplications count, two FLOPs
per multiply-add; attention is counted for all T keys, or for a whole window where it reaches back less:
the causal mask is not discounted (llm.c halves it, so its MFU is not comparable); the backward pass
costs twice the forward; nothing recomputed counts. Look-ups (embeddings of tokens, positions, values)
are free, the head is a matmul whether tied or not.
"""

from x1_pretrain.errors import UserError
from x1_pretrain.shape import matmul_params_per_layer


def forward_flops_per_token(
    n_layer: int,
    d_model: int,
    n_head: int,
    n_kv_head: int,
    n_vocab: int,
    seq_len: int,
    activation: str = "relu2",
    window: float | None = None,
) -> int:
    """FLOPs of the forward pass per token, averaged over a sequence of `seq_len` tokens.

    2 per weight of every matmul (head included), plus 4 * keys * d per layer for q k^T and the
    weighted sum of v, with `window` keys per query (a mean over a run may be fractional), or all
    `seq_len` for None. Grouped-query attention makes the k and v projections smaller, not the
    attention itself.
    Raises `UserError` for a size below one or a shape that does not divide.
    """
    keys = seq_len if window is None else min(window, seq_len)
    sizes = {
        "n_layer": n_layer,
        "d_model": d_model,
        "n_head": n_head,
        "n_kv_head": n_kv_head,
        "n_vocab": n_vocab,
        "seq_len": seq_len,
        "window": keys,
    }
    for name, value in sizes.items():
        if not value >= 1:
            raise UserError(f"{name}: {value} is not a size; it must be at least 1")
    if d_model % n_head:
        raise UserError(f"n_head: {n_head} does not divide d_model {d_model}; choose one that does")
    if n_head % n_kv_head:
        raise UserError(f"n_kv_head: {n_kv_head} does not divide n_head {n_head}; choose one that does")
    blocks = n_layer * matmul_params_per_layer(d_model, n_head, n_kv_head, activation)
    return 2 * (blocks + d_model * n_vocab) + round(n_layer * 4 * keys * d_model)


def training_flops_per_token(
    n_layer: int,
    d_model: int,
    n_head: int,
    n_kv_head: int,
    n_vocab: int,
    seq_len: int,
    activation: str = "relu2",
    window: float | None = None,
) -> int:
    """FLOPs per trained token: 3 x forward. Raises like `forward_flops_per_token`."""
    sizes = (n_layer, d_model, n_head, n_kv_head, n_vocab, seq_len)
    return 3 * forward_flops_per_token(*sizes, activation, window)


def six_nd(N: float, D: float) -> float:
    """C = 6ND, the scaling-law convention (Kaplan 2020): no head, no attention scores."""
    return 6 * N * D
