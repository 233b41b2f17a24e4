"""Muon and AdamW: each parameter in exactly one, updates of the right size and direction."""

import dataclasses

import pytest
import torch

from tests.conftest import RECIPE, SHAPE, TRAIN
from x1_pretrain.model import GPT
from x1_pretrain.optim import Muon, build_optimizers, orthogonalise, set_lr
from x1_pretrain.shape import ModelShape


@pytest.mark.parametrize("recipe", [{}, {"tied_head": True}, {"optimizer": "adamw"}])
def test_every_parameter_is_in_exactly_one_group(recipe):
    recipe = dataclasses.replace(RECIPE, **recipe)
    model = GPT(SHAPE, recipe, 40, 8).initialise(0)
    optimizers = build_optimizers(model, TRAIN, recipe)
    held = [id(p) for o in optimizers for group in o.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())
    if recipe.optimizer == "muon":
        muon = {id(p) for p in optimizers[0].param_groups[0]["params"]}
        assert id(model.embedding.token.weight) not in muon and id(model.head.weight) not in muon


def test_orthogonalised_singular_values_are_near_one():
    g = torch.randn(5, 12, 30, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(g))
    assert values.min() > 0.5 and values.max() < 1.3
    u, _, vh = torch.linalg.svd(g, full_matrices=False)
    cosine = torch.nn.functional.cosine_similarity(orthogonalise(g).flatten(1), (u @ vh).flatten(1))
    assert cosine.min() > 0.95


@pytest.mark.parametrize("rows, columns", [(8, 8), (8, 32), (32, 8)])
def test_a_step_is_the_orthogonal_factor_scaled_by_shape(rows, columns):
    weight = torch.nn.Parameter(torch.zeros(rows, columns))
    weight.grad = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    Muon([(weight, [rows])], lr=0.1, momentum=0.0, weight_decay=0.0).step()
    u, _, vh = torch.linalg.svd(weight.grad, full_matrices=False)
    expected = -0.1 * max(1, rows / columns) ** 0.5 * (u @ vh)
    cosine = torch.nn.functional.cosine_similarity(weight.flatten(), expected.flatten(), dim=0)
    assert cosine > 0.95
    assert weight.norm().item() == pytest.approx(expected.norm().item(), rel=0.25)


def test_a_fused_matrix_is_updated_as_its_blocks():
    generator = torch.Generator().manual_seed(0)
    blocks = [8, 4, 4]
    gradient = torch.randn(16, 8, generator=generator)
    fused = torch.nn.Parameter(torch.zeros(16, 8))
    fused.grad = gradient.clone()
    Muon([(fused, blocks)], lr=0.1, momentum=0.9, weight_decay=0.0).step()
    for part, start, rows in zip(gradient.split(blocks), (0, 8, 12), blocks, strict=True):
        alone = torch.nn.Parameter(torch.zeros(rows, 8))
        alone.grad = part.clone()
        Muon([(alone, [rows])], lr=0.1, momentum=0.9, weight_decay=0.0).step()
        torch.testing.assert_close(fused.detach()[start : start + rows], alone.detach())


def test_gqa_blocks_follow_the_heads():
    shape = ModelShape(n_layer=1, d_model=32, n_head=4, n_kv_head=1, flops=1e9)
    muon, _ = build_optimizers(GPT(shape, RECIPE, 40, 8), TRAIN, RECIPE)
    assert [32, 8, 8] in muon.blocks


def test_set_lr_scales_the_peak_not_the_last_value():
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = torch.optim.AdamW([weight], lr=0.5)
    for scale in (0.1, 1.0, 0.5):
        set_lr([optimizer], scale)
        assert optimizer.param_groups[0]["lr"] == 0.5 * scale
