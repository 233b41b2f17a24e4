"""Muon for the hidden matrices, AdamW for embeddings, head and scalars; every parameter in exactly one.

Learning rates hold at width `train.base_width`. Muon's needs no rule for the width (the update's scale has
it); AdamW's gets one from muP where the recipe asks for it.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from x1_pretrain.config import Train
from x1_pretrain.model import GPT
from x1_pretrain.shape import Recipe

# Coefficients of five quintic iterations, each the best for what the one before leaves (Polar Express, Amsel
# et al. 2025, for 5 iterations with a safety factor of 2%).
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
SAFETY = 1.02


def orthogonalise(g_MRC: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices to a stack of matrices [M, R, C], roughly: U V^T of each.

    Needs R <= C. Most singular values end within 15% of 1, which is all that Muon needs. Under autocast the
    products are in bf16, which is twice as fast and as good here.
    """
    x = g_MRC / (g_MRC.norm(dim=(1, 2), keepdim=True) * SAFETY + 1e-7)
    for a, b, c in POLAR_EXPRESS:
        gram = torch.bmm(x, x.mT)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised (Jordan et al. 2024), batched over equal shapes.

    A fused matrix (query, key, value in one) is updated as its row blocks: `blocks` gives their heights.
    The update has RMS about 1/sqrt(d_in), scaled by sqrt(max(1, d_out/d_in)), so one lr fits all widths.
    """

    def __init__(
        self,
        matrices: list[tuple[nn.Parameter, list[int]]],
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        self.blocks = [blocks for _, blocks in matrices]
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([parameter for parameter, _ in matrices], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        (group,) = self.param_groups
        momentum, lr = group["momentum"], group["lr"]
        by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter, blocks in zip(group["params"], self.blocks, strict=True):
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            buffer = state["momentum"].lerp_(parameter.grad, 1 - momentum)
            update = parameter.grad.lerp(buffer, momentum)  # Nesterov
            if group["weight_decay"]:
                parameter.mul_(1 - lr * group["weight_decay"])
            for rows, target in zip(update.split(blocks), parameter.split(blocks), strict=True):
                wide, target = (rows, target) if rows.size(0) <= rows.size(1) else (rows.mT, target.mT)
                by_shape[tuple(wide.shape)].append((wide, target))
        for members in by_shape.values():
            direction_MRC = orthogonalise(torch.stack([wide for wide, _ in members]))
            for direction, (_, target) in zip(direction_MRC, members, strict=True):
                # `target` is a transposed view where the weight [d_out, d_in] is tall (d_out > d_in).
                tall = target.stride(0) < target.stride(1)
                scale = (target.size(1) / target.size(0)) ** 0.5 if tall else 1.0
                target.add_(direction, alpha=-lr * scale)


def build_optimizers(model: GPT, train: Train, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """[Muon, AdamW], or [AdamW] alone. Raises `RuntimeError` if a parameter would be in none or in two.

    With muP (Yang et al. 2022, table 8) the lr of what AdamW trains from a wide input, hidden matrices and
    head, goes with base_width / d_model; that of embeddings and scalars does not change.
    """
    by_width = train.base_width / model.shape.d_model if recipe.mup else 1.0
    matrices = hidden_matrices(model)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    hidden = {id(parameter) for parameter, _ in matrices}
    groups: dict[str, list[nn.Parameter]] = defaultdict(list)
    for parameter in model.parameters():
        if id(parameter) in hidden:
            groups["hidden"].append(parameter)
        elif id(parameter) in tables:
            groups["embedding"].append(parameter)
        else:
            groups["scalar" if parameter.ndim < 2 else "head"].append(parameter)
    lr = {
        "hidden": train.adamw_lr * by_width,
        "head": train.adamw_lr * by_width,
        "embedding": train.embedding_lr,
        "scalar": train.adamw_lr,
    }
    optimizers: list[torch.optim.Optimizer] = []
    if recipe.optimizer == "muon":
        optimizers.append(Muon(matrices, train.muon_lr, train.momentum, train.weight_decay))
        del groups["hidden"]
    decays = {name: 0.0 if name == "scalar" else train.weight_decay for name in groups}
    adamw = [{"params": groups[n], "lr": lr[n], "weight_decay": decays[n]} for n in sorted(groups)]
    betas = (train.beta1, train.beta2)
    optimizers.append(torch.optim.AdamW(adamw, betas=betas, eps=train.eps, fused=True))
    held = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    if sorted(held) != sorted(id(p) for p in model.parameters()):
        raise RuntimeError("a parameter is in two optimizer groups, or in none")
    return optimizers


def hidden_matrices(model: GPT) -> list[tuple[nn.Parameter, list[int]]]:
    """The weights of the linear layers inside the blocks, with the heights of the parts of a fused one."""
    return [
        (module.weight, getattr(parent, f"{name}_widths", [module.out_features]))
        for parent in model.blocks.modules()
        for name, module in parent.named_children()
        if isinstance(module, nn.Linear)
    ]


def set_lr(optimizers: list[torch.optim.Optimizer], scale: float) -> None:
    """Multiply every group's peak lr (its `initial_lr`) by the schedule's `scale`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * scale
