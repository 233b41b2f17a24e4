"""Muon for the hidden matrices, AdamW for embeddings and head; every parameter in exactly one."""

from collections import defaultdict

import torch
from torch import Tensor, nn

from x1_pretrain.config import Recipe, Train

# Coefficients of the quintic Newton-Schulz iteration (Jordan et al. 2024, Muon).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


def orthogonalise(g_MRC: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices to a stack of matrices [M, R, C], roughly: U V^T of each.

    Needs R <= C. Singular values end within about [0.7, 1.2], which is all that Muon needs.
    """
    a, b, c = NEWTON_SCHULZ
    x = g_MRC / (g_MRC.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Momentum orthogonalised by Newton-Schulz (Jordan et al. 2024), batched over equal shapes.

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


def build_optimizers(model: nn.Module, train: Train, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """[Muon, AdamW], or [AdamW] alone. Raises if a parameter would be in none or in two."""
    matrices = [
        (
            module.weight,
            getattr(parent, "qkv_widths", [module.out_features]) if name == "qkv" else [module.out_features],
        )
        for parent in model.blocks.modules()
        for name, module in parent.named_children()
        if isinstance(module, nn.Linear)
    ]
    hidden = {id(parameter) for parameter, _ in matrices}
    others = [p for p in model.parameters() if id(p) not in hidden]
    if len(hidden) != len(matrices) or len(hidden) + len(others) != len(list(model.parameters())):
        raise RuntimeError("a parameter is in two optimizer groups")
    betas = (train.beta1, train.beta2)
    adamw = {"betas": betas, "eps": train.eps, "weight_decay": train.weight_decay, "fused": True}
    if recipe.optimizer == "adamw":
        return [torch.optim.AdamW(model.parameters(), lr=train.adamw_lr, **adamw)]
    return [
        Muon(matrices, train.muon_lr, train.momentum, train.weight_decay),
        torch.optim.AdamW(others, lr=train.adamw_lr, **adamw),
    ]


def set_lr(optimizers: list[torch.optim.Optimizer], scale: float) -> None:
    """Multiply every group's peak lr (its `initial_lr`) by the schedule's `scale`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * scale
