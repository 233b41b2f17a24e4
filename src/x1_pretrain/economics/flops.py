"""FLOPs of a decoder-only transformer, counted one way everywhere: dollars, MFU and C hang on it.

Convention (PaLM, Chowdhery et al. 2022, appendix B): only matrix multiplications count, two FLOPs
per multiply-add; attention is counted for all T keys, the causal mask is not discounted (llm.c
halves it, so its MFU is not comparable); the backward pass costs twice the forward; nothing
recomputed counts. The embedding look-up is free, the head is a matmul whether tied or not.
"""

from x1_pretrain.errors import UserError

MLP_RATIO = 4


def matmul_params_per_layer(d_model: int, n_head: int, n_kv_head: int) -> int:
    """Weights of a block: q, o (d x d), k, v (d x n_kv_head * head size), MLP up and down."""
    head_size = d_model // n_head
    return 2 * d_model**2 + 2 * d_model * n_kv_head * head_size + 2 * MLP_RATIO * d_model**2


def forward_flops_per_token(
    n_layer: int, d_model: int, n_head: int, n_kv_head: int, n_vocab: int, seq_len: int
) -> int:
    """FLOPs of the forward pass per token, averaged over a sequence of `seq_len` tokens.

    2 per weight of every matmul (head included), plus 4 * T * d per layer for q k^T and the
    weighted sum of v. Grouped-query attention makes the k and v projections smaller, not the
    attention itself.
    Raises `UserError` for a size below one or a shape that does not divide.
    """
    sizes = {
        "n_layer": n_layer,
        "d_model": d_model,
        "n_head": n_head,
        "n_kv_head": n_kv_head,
        "n_vocab": n_vocab,
        "seq_len": seq_len,
    }
    for name, value in sizes.items():
        if value < 1:
            raise UserError(f"{name}: {value} is not a size; it must be at least 1")
    if d_model % n_head:
        raise UserError(f"n_head: {n_head} does not divide d_model {d_model}; choose one that does")
    if n_head % n_kv_head:
        raise UserError(f"n_kv_head: {n_kv_head} does not divide n_head {n_head}; choose one that does")
    weights = n_layer * matmul_params_per_layer(d_model, n_head, n_kv_head) + d_model * n_vocab
    return 2 * weights + n_layer * 4 * seq_len * d_model


def training_flops_per_token(
    n_layer: int, d_model: int, n_head: int, n_kv_head: int, n_vocab: int, seq_len: int
) -> int:
    """FLOPs per trained token: 3 x forward. Raises like `forward_flops_per_token`."""
    return 3 * forward_flops_per_token(n_layer, d_model, n_head, n_kv_head, n_vocab, seq_len)


def six_nd(N: float, D: float) -> float:
    """C = 6ND, the scaling-law convention (Kaplan 2020): no head, no attention scores."""
    return 6 * N * D


def tokens_for(C: float, N: float) -> float:
    """D = C / 6N: the tokens that spend C FLOPs on N non-embedding parameters."""
    return C / (6 * N)
