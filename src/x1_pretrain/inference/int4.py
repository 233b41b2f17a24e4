"""A linear layer with 4-bit weights, computed by torch's own kernels on CPU and CUDA.

Any width will do: rows and columns are padded to what the kernels take. torchao's CPU layer, which calls the
same kernel, leaves a layer as it is when its width is not a multiple of the group.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from x1_pretrain.inference.gptq import GROUP, Int4

ROWS = 16  # the CPU kernel takes multiples of this, CUDA's of 8
INNER_K_TILES = 2  # of CUDA's layout: columns in multiples of 16 times this, which a group always is


def packed(levels: Tensor) -> Tensor:
    """Two columns to a byte, the even one in the high half: uint8 [R, C / 2] of int32 [R, C]."""
    return (levels[:, ::2] << 4 | levels[:, 1::2]).to(torch.uint8)


class Int4Linear(nn.Module):
    """x W^T in bf16 for an `Int4` W of `n_columns` columns that are not padding."""

    def __init__(self, weight: Int4, n_columns: int) -> None:
        super().__init__()
        self.n_rows, self.n_columns = weight.levels.size(0), n_columns
        self.padding = weight.levels.size(1) - n_columns
        rows = (0, 0, 0, -self.n_rows % ROWS)
        levels = F.pad(weight.levels, rows)
        if levels.is_cuda:
            kernel_layout = torch._convert_weight_to_int4pack(packed(levels), INNER_K_TILES)
        else:
            kernel_layout = torch._convert_weight_to_int4pack_for_cpu(levels, INNER_K_TILES)
        scale_and_zero = torch.stack((F.pad(weight.scale, rows), F.pad(weight.zero, rows)), dim=-1)
        self.register_buffer("levels", kernel_layout)
        self.register_buffer("scale_and_zero", scale_and_zero.transpose(0, 1).contiguous())  # [G, R, 2]

    def forward(self, x: Tensor) -> Tensor:
        x_NC = F.pad(x.flatten(0, -2), (0, self.padding)).contiguous()
        multiply = torch._weight_int4pack_mm if x.is_cuda else torch._weight_int4pack_mm_for_cpu
        y_NR = multiply(x_NC, self.levels, GROUP, self.scale_and_zero)
        return y_NR[:, : self.n_rows].unflatten(0, x.shape[:-1])
