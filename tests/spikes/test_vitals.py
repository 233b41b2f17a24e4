"""Vitals say what they say by their formulas, and looking changes nothing."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tests.conftest import RECIPE, TRAIN
from x1_pretrain.determinism import Used
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers
from x1_pretrain.shape import ModelShape
from x1_pretrain.spikes.vitals import probe_vitals, sequence_losses, update_vitals
from x1_pretrain.step import train_step

V, T, B = 64, 16, 4
SHAPE = ModelShape(n_layer=2, d_model=16, n_head=2, n_kv_head=1, flops=1e9)
EAGER = Used("cpu", "test", 1, "fp32", "fp32", False, False, "sdpa", "sdpa", True)
SETTINGS = dataclasses.replace(TRAIN, micro_batch=B)


def windows(number: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(number).integers(0, V, size=(B, T + 1)))


def trained(steps: int = 4, look=lambda model, optimizers: None, **changes):
    recipe = dataclasses.replace(RECIPE, **changes)
    model = GPT(SHAPE, recipe, V, T).initialise(0)
    optimizers = build_optimizers(model, SETTINGS, recipe)
    results = [
        train_step(
            model.loss,
            model,
            optimizers,
            windows(step),
            SETTINGS,
            1.0,
            EAGER,
            look=lambda: look(model, optimizers),
        )
        for step in range(steps)
    ]
    return model, results


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_looking_changes_no_bit(optimizer):
    def look(model, optimizers):
        update_vitals(model, optimizers)
        probe_vitals(model, windows(99), EAGER)
        sequence_losses(model, windows(99), 2, EAGER)

    plain, watched = trained(optimizer=optimizer), trained(look=look, optimizer=optimizer)
    assert plain[1] == watched[1]
    for a, b in zip(plain[0].parameters(), watched[0].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_update_sizes_are_those_of_the_weights_difference(optimizer):
    before: dict[str, torch.Tensor] = {}
    seen: list[tuple[dict[str, float], dict[str, float]]] = []

    def look(model, optimizers):
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        if before:
            moved = {n: (p - before[n]).square().mean().sqrt().item() for n, p in weights.items()}
            seen.append((update_vitals(model, optimizers), moved))
        before.update(weights)

    trained(look=look, optimizer=optimizer)
    vitals, moved = seen[-1]
    for group, name in (("head", "head.weight"), ("embedding", "embedding.token.weight")):
        lr = TRAIN.adamw_lr
        assert vitals[f"update_rms.{group}"] == pytest.approx(moved[name] / lr, rel=1e-3)
        size = before[name].square().mean().sqrt().item()
        assert vitals[f"relative_update.{group}"] == pytest.approx(moved[name] / size, rel=1e-3)
    hidden = max(moved[n] for n in moved if n.startswith("blocks") and before[n].ndim == 2)
    lr = TRAIN.muon_lr if optimizer == "muon" else TRAIN.adamw_lr
    assert hidden / lr == pytest.approx(vitals["update_rms.hidden"], rel=0.4)
    assert vitals["rms_of_g2_over_v.head"] > 0


def test_the_largest_attention_logit_is_bounded_by_qk_norm():
    model, _ = trained()
    found = probe_vitals(model, windows(99), EAGER)
    assert 0 < found["attention_logit_max"] <= math.sqrt(SHAPE.d_model / SHAPE.n_head) * 1.001
    logits = model(windows(99)[:, :-1])
    assert found["log_z_mean"] == pytest.approx(logits.logsumexp(dim=-1).mean().item(), rel=1e-5)


def test_logits_without_qk_norm_grow_with_the_weights():
    model, _ = trained(qk_norm=False)
    small = probe_vitals(model, windows(99), EAGER)["attention_logit_max"]
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.mul_(10)
    assert probe_vitals(model, windows(99), EAGER)["attention_logit_max"] > 10 * small


def test_sequence_losses_average_to_the_batchs():
    model, _ = trained()
    losses = sequence_losses(model, windows(7), 2, EAGER)
    assert len(losses) == B
    whole = model.loss(windows(7)[:, :-1], windows(7)[:, 1:]).item()
    assert np.mean(losses) == pytest.approx(whole, rel=1e-5)
