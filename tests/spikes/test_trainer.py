"""The torch trainer keeps the lab's protocol: exact rewinds, an update clip that clips."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.conftest import RECIPE, TRAIN
from x1_pretrain.determinism import Used
from x1_pretrain.shape import ModelShape
from x1_pretrain.spikes.lab import Event, Treatment
from x1_pretrain.spikes.trainer import TorchTrainer

V, T, B = 64, 16, 4
SHAPE = ModelShape(n_layer=1, d_model=16, n_head=2, n_kv_head=2, flops=1e9)
SETTINGS = dataclasses.replace(TRAIN, seq_len=T, batch_sequences=B, micro_batch=2)
EAGER = Used("cpu", "test", 1, "fp32", "fp32", False, False, "sdpa", "sdpa", True)


def trainer(optimizer: str = "muon") -> TorchTrainer:
    recipe = dataclasses.replace(RECIPE, optimizer=optimizer)
    return TorchTrainer(SHAPE, recipe, SETTINGS, V, seed=0, used=EAGER)


def batch(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, V, size=(B, T + 1))


def test_a_restored_state_trains_on_bit_for_bit():
    real = trainer()
    for number in range(3):
        real.step(batch(number), 1.0)
    saved = real.snapshot()
    first = [real.step(batch(number), 1.0) for number in range(3, 8)]
    for _ in range(2):  # a snapshot stays usable
        real.restore(saved)
        real.loss(batch(99))  # looking changes nothing
        assert [real.step(batch(number), 1.0) for number in range(3, 8)] == first


def test_watching_does_not_change_the_run():
    plain, watched = trainer(), trainer()
    for number in range(4):
        a, b = plain.step(batch(number), 1.0), watched.step(batch(number), 1.0, watch=True)
        assert (a.loss_nats, a.grad_norm, a.update_rms) == (b.loss_nats, b.grad_norm, None)
        assert b.update_rms > 0


def test_losses_agree():
    real = trainer()
    real.step(batch(0), 1.0)
    losses = real.token_losses(batch(1))
    assert losses.shape == (B, T)
    assert real.loss(batch(1)) == pytest.approx(losses.mean(), rel=1e-5)


def test_stale_second_moment_shows_in_the_update_rms_and_is_clipped():
    real = trainer("adamw")
    for number in range(20):
        real.step(batch(number), 1.0)
    before = {name: weight.detach().clone() for name, weight in real.model.named_parameters()}
    step = real.step(batch(20), 1.0, treatment=Treatment(clip_update=True), event=Event(fault="stale_moment"))
    assert step.update_rms > 1.0
    for name, weight in real.model.named_parameters():
        rms = (weight - before[name]).square().mean().sqrt().item() / SETTINGS.adamw_lr
        assert rms <= 1.0 + 1e-4


def test_a_step_that_is_not_finite_is_reported_and_leaves_the_weights():
    real = trainer()
    with torch.no_grad():
        real.model.head.weight.fill_(float("nan"))
    before = real.model.embedding.token.weight.detach().clone()
    assert np.isnan(real.step(batch(0), 1.0).loss_nats)
    assert torch.equal(real.model.embedding.token.weight, before)


def test_masked_targets_do_not_count():
    plain, masked = trainer(), trainer()
    mask = np.zeros(V, dtype=bool)
    mask[:10] = True
    for real in (plain, masked):
        for number in range(3):
            real.step(batch(number), 1.0)
    losses, kept = plain.token_losses(batch(5)), ~mask[batch(5)[:, 1:]]
    step = masked.step(batch(5), 1.0, treatment=Treatment(masked=mask))
    assert step.loss_nats == pytest.approx(losses[kept].mean(), rel=1e-5)
    nothing = trainer().step(batch(5), 1.0, treatment=Treatment(masked=np.zeros(V, dtype=bool)))
    assert nothing.loss_nats == pytest.approx(trainer().step(batch(5), 1.0).loss_nats, rel=1e-6)


def test_a_scaled_gradient_leaves_the_loss():
    plain, scaled = trainer().step(batch(0), 1.0), trainer().step(batch(0), 1.0, event=Event(0.01))
    assert scaled.loss_nats == plain.loss_nats
    assert scaled.grad_norm == pytest.approx(0.01 * plain.grad_norm, rel=1e-4)


def test_a_nan_gradient_touches_no_weight():
    real = trainer()
    real.step(batch(0), 1.0)
    before = real.model.head.weight.detach().clone()
    assert np.isnan(real.step(batch(1), 1.0, event=Event(fault="nan_gradient")).loss_nats)
    assert torch.equal(real.model.head.weight, before)
    assert np.isfinite(real.step(batch(2), 1.0).loss_nats)


def test_a_flipped_bit_makes_an_update_that_no_gradient_would():
    real = trainer()
    for number in range(5):
        real.step(batch(number), 1.0)
    rms = real.step(batch(5), 1.0, watch=True, event=Event(fault="bit_flip")).update_rms
    assert not rms < 100


def test_a_tighter_clip_makes_smaller_steps_under_muon_and_adam_alike():
    loose, tight = trainer("adamw"), trainer("adamw")
    for number in range(3):
        loose.step(batch(number), 1.0)
        tight.step(batch(number), 1.0, treatment=Treatment(grad_clip=1e-12))
    moved = [
        (a - b).abs().max() for a, b in zip(loose.model.parameters(), tight.model.parameters(), strict=True)
    ]
    assert max(moved) > 0
