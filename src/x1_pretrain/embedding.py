"""What the first block reads at each position: the token, and what the recipe adds to it.

A block of attention can learn to look one token back, but it takes a small model hundreds of steps.
The recipe's token shift and bigram table give it the token before from the first step on.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from x1_pretrain.shape import ModelShape, Recipe

# Any two odd numbers without a common factor spread the pairs over the rows.
HASH_BEFORE, HASH_HERE = 36_313, 27_191
LOOKS_BACK = 2  # tokens that an embedding depends on besides its own: the shift adds one that has a bigram


def rms_norm(x: Tensor) -> Tensor:
    """RMSNorm without a learned gain: the matrices that follow can learn one."""
    return F.rms_norm(x, (x.size(-1),))


def shifted(x_BT: Tensor, first: int = 0) -> Tensor:
    """What stands one position before, along dimension 1; `first` where nothing does."""
    return F.pad(x_BT[:, :-1], (0, 0) * (x_BT.ndim - 2) + (1, 0), value=first)


class Embedding(nn.Module):
    """Token ids [B, T] to [B, T, D], of RMS 1 before the token shift."""

    def __init__(self, shape: ModelShape, recipe: Recipe, n_vocab: int, seq_len: int) -> None:
        super().__init__()
        self.n_vocab = n_vocab
        self.token = nn.Embedding(n_vocab, shape.d_model)
        self.position = self.bigram = self.token_shift = None
        if recipe.position == "learned":  # GPT-2 (Radford et al. 2019)
            self.position = nn.Embedding(seq_len, shape.d_model)
        if recipe.bigram_rows is not None:
            self.bigram = nn.Embedding(recipe.bigram_rows, shape.d_model)
        if recipe.token_shift:
            self.token_shift = nn.Parameter(torch.empty(shape.d_model))

    def forward(self, tokens_BT: Tensor, begin: int = 0) -> Tensor:
        """`begin` is the position of the first of the tokens."""
        x_BTD = self.token(tokens_BT)
        if self.position is not None:
            x_BTD = x_BTD + self.position.weight[begin : begin + tokens_BT.size(1)]
        if self.bigram is not None:  # modded-nanogpt (Jordan et al. 2024, record of January 2026)
            before_BT = shifted(tokens_BT, first=self.n_vocab)
            row_BT = (HASH_BEFORE * before_BT + HASH_HERE * tokens_BT) % self.bigram.num_embeddings
            x_BTD = x_BTD + self.bigram(row_BT)
        x_BTD = rms_norm(x_BTD)
        if self.token_shift is not None:  # RWKV (Peng et al. 2023), nanochat's smear
            x_BTD = x_BTD + self.token_shift * shifted(x_BTD)
        return x_BTD
