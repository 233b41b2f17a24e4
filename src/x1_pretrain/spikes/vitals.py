"""What a run's inside says before its loss does: sizes of updates, attention logits, log Z.

Measured every so many steps only, and by looking: no weight, gradient, optimizer state or random generator
is touched, so that a run's bits do not depend on it.
"""

import math
from collections import defaultdict

import torch
from torch import Tensor

from x1_pretrain.attention import rope_tables, rotate
from x1_pretrain.determinism import Used
from x1_pretrain.embedding import rms_norm
from x1_pretrain.model import GPT, Attention
from x1_pretrain.optim import Muon

PROBE_SEQUENCES = 4  # of the held-out batch, for attention logits and log Z


def group_of(name: str, parameter: Tensor) -> str:
    """The kind of a parameter, as in optim.py: hidden, embedding, head or scalar."""
    if parameter.ndim < 2:
        return "scalar"
    if name.startswith("head"):
        return "head"
    return "embedding" if "embedding." in name else "hidden"


@torch.no_grad()
def update_vitals(model: GPT, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
    """Of the update just made, by group, the largest of its tensors; gradients must still be there.

    `update_rms`: RMS of the update over its lr; `relative_update`: norm of the update over the weights';
    `rms_of_g2_over_v`: sqrt(mean(g^2 / v)), StableAdamW's measure of a second moment that lags (Wortsman et
    al. 2023). The last is AdamW's only; Muon's update has a known size.
    """
    groups = {id(p): group_of(name, p) for name, p in model.named_parameters()}
    found: dict[str, list[Tensor]] = defaultdict(list)
    for optimizer in optimizers:
        for settings in optimizer.param_groups:
            for weight in settings["params"]:
                if weight.grad is None or not optimizer.state.get(weight):
                    continue
                group = groups[id(weight)]
                if isinstance(optimizer, Muon):
                    rms = torch.tensor(1 / math.sqrt(weight.size(1)), device=weight.device)
                else:
                    rms, lag = adam_sizes(optimizer.state[weight], settings, weight.grad)
                    found[f"rms_of_g2_over_v.{group}"].append(lag)
                size = weight.square().mean().sqrt()
                found[f"update_rms.{group}"].append(rms)
                found[f"relative_update.{group}"].append(settings["lr"] * rms / size.clamp_min(1e-12))
    return {name: torch.stack(values).max().item() for name, values in sorted(found.items())}


def adam_sizes(state: dict[str, Tensor], settings: dict[str, object], grad: Tensor) -> tuple[Tensor, Tensor]:
    """RMS of AdamW's update over its lr, and sqrt(mean(g^2 / v)), of one tensor after its update."""
    (beta1, beta2), eps, step = settings["betas"], settings["eps"], float(state["step"])
    root_v = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt() + eps
    update = state["exp_avg"] / (1 - beta1**step) / root_v
    return update.square().mean().sqrt(), (grad / root_v).square().mean().sqrt()


@torch.no_grad()
def probe_vitals(model: GPT, windows: Tensor, used: Used) -> dict[str, float]:
    """On held-out windows [n, T+1]: the largest attention logit of any layer, and the mean of log Z.

    Public runs in which a logit passed 1e4 diverged (Wortsman et al. 2023); a log Z that drifts is the
    head's own instability.
    """
    largest: list[Tensor] = []

    def look(attention: Attention, inputs: tuple[Tensor, ...], qkv: Tensor) -> None:
        largest.append(_largest_logit(attention, qkv, model))

    handles = [
        block.attention.qkv.register_forward_hook(
            lambda module, inputs, output, a=block.attention: look(a, inputs, output)
        )
        for block in model.blocks
    ]
    try:
        with used.autocast():
            logits = model(windows[:PROBE_SEQUENCES, :-1]).float()
    finally:
        for handle in handles:
            handle.remove()
    return {
        "attention_logit_max": torch.stack(largest).max().item(),
        "log_z_mean": logits.logsumexp(dim=-1).mean().item(),
    }


def _largest_logit(attention: Attention, qkv: Tensor, model: GPT) -> Tensor:
    """max |q k^T| * scale over the causal pairs of one layer; `qkv` is what its projection gave."""
    B, T, _ = qkv.shape
    q, k, _ = qkv.float().split(attention.qkv_widths, dim=-1)
    q, k = q.view(B, T, attention.n_head, -1), k.view(B, T, attention.n_kv_head, -1)
    if attention.qk_norm:
        q, k = rms_norm(q), rms_norm(k)
    if model.recipe.position == "rope":
        cos_TS, sin_TS = (table.to(qkv.device) for table in rope_tables(T, attention.head_size))
        q, k = rotate(q, cos_TS, sin_TS), rotate(k, cos_TS, sin_TS)
    k = k.repeat_interleave(attention.n_head // attention.n_kv_head, dim=2)
    scale = attention.scale if attention.scale is not None else 1 / math.sqrt(attention.head_size)
    logits = torch.einsum("bths,buhs->bhtu", q, k).abs() * scale
    return logits.tril().max()


@torch.no_grad()
def sequence_losses(model: GPT, windows: Tensor, micro_batch: int, used: Used) -> list[float]:
    """Mean loss in nats of each sequence of `windows` [n, T+1], on the weights as they are."""
    losses = []
    for micro in windows.split(micro_batch):
        with used.autocast():
            token_losses = model.loss(micro[:, :-1], micro[:, 1:], reduction="none")
        losses += token_losses.view(len(micro), -1).mean(dim=1).tolist()
    return losses
