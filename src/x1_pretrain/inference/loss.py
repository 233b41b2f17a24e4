"""The validation loss of a model in any number format."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from x1_pretrain.model import GPT

LOGITS_BYTES = 2**26  # of a chunk of windows, in fp32


@dataclass(frozen=True)
class Loss:
    """Over all targets: nats per token, and bits per UTF-8 byte of the text they stand for."""

    nats_per_token: float
    bits_per_byte: float


@torch.no_grad()
def evaluate(model: GPT, windows: np.ndarray, token_bytes: np.ndarray) -> Loss:
    """Loss over `windows`, int64 [n, T + 1], whose tokens stand for `token_bytes` [n_vocab] bytes.

    Sums are taken in fp64, so that the number of windows in a chunk does not matter much. The logits are the
    model's own: a head in int4 has no matrix that `GPT.loss` could use.
    """
    device, nats = model.cos_TS.device, 0.0
    chunk = max(1, LOGITS_BYTES // (4 * model.n_vocab * (windows.shape[1] - 1)))
    for begin in range(0, len(windows), chunk):
        chunk_BT = torch.from_numpy(windows[begin : begin + chunk]).to(device)
        logits_NV = model(chunk_BT[:, :-1]).flatten(0, 1).float()
        nats += F.cross_entropy(logits_NV, chunk_BT[:, 1:].flatten(), reduction="none").double().sum().item()
    targets = windows[:, 1:]
    text_bytes = int(token_bytes[targets].sum(dtype=np.int64))
    return Loss(nats / targets.size, nats / math.log(2) / text_bytes)
