"""The whole procedure on a toy trainer: what was injected is found, named and recovered from."""

import dataclasses

import pytest

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.incident import run_incident
from x1_pretrain.spikes.monitor import SpikeMonitor
from x1_pretrain.spikes.recovery import batch_after_skip
from x1_pretrain.spikes.watch import calm_run, watch


def run(lab, corpus, steps=220):
    return run_incident(lab, corpus, SpikeMonitor(), steps)


@pytest.mark.parametrize(
    ("injection", "cause", "subtype"),
    [
        ("garbage", "dataset_corruption", "foreign_tokens"),
        ("shuffle", "dataset_corruption", "broken_order"),
        ("repeat", "dataset_corruption", "repeated_ngram"),
        ("rare", "rare_token", None),
    ],
)
def test_bad_batches_are_found_named_and_skipped(make_lab, markov_corpus, injection, cause, subtype):
    findings = run(make_lab(injection), markov_corpus, steps=260)
    found, recovery = findings.found, findings.recovery
    assert findings.incident.alarms[0].step == 170
    assert found.offending == (170, 173)
    assert found.reproduction.reproduced and found.reproduction.bit_for_bit
    assert found.reproduction.tolerance_nats == 0.0
    assert (found.verdict.cause, found.verdict.subtype) == (cause, subtype)
    assert not found.replays["other_batches"].arm.spikes
    assert found.replays["other_state"].arm.spikes
    assert recovery.action == "rewind_and_skip" and recovery.back_to_control("rewind_and_skip")
    rows = recovery.policies["rewind_and_skip"].rows
    assert len(rows) == len(recovery.control.rows)
    assert not {row.batch for row in rows} & set(range(169, 175))
    assert [row.step for row in recovery.policies["no_action"].rows][-1] == 260
    assert not any(row.result.grad_norm == row.result.grad_norm for row in recovery.policies["skip"].rows
                   if row.step == 170)  # fmt: skip


def test_without_its_rare_targets_the_batch_is_normal(make_lab, markov_corpus):
    masked = run(make_lab("rare"), markov_corpus).found.replays["masked_rare"]
    assert not masked.arm.spikes


def test_a_raised_lr_is_told_from_a_restarted_warm_up(make_lab, markov_corpus):
    for injection, subtype in (("lr", "raised"), ("rewarm", "restarted_warmup")):
        findings = run(make_lab(injection, lr=40.0), markov_corpus, steps=240)
        verdict = findings.found.verdict
        assert (verdict.cause, verdict.subtype) == ("lr_too_high", subtype), verdict.rule
        assert findings.recovery.action == "trusted_lr" and findings.recovery.back_to_control("trusted_lr")


@pytest.mark.parametrize("injection", ["bit_flip", "nan_gradient"])
def test_what_replays_do_not_meet_is_the_machines(make_lab, markov_corpus, injection):
    findings = run(make_lab(injection), markov_corpus)
    verdict = findings.found.verdict
    assert (verdict.cause, verdict.subtype) == ("numeric", "not_reproducible")
    assert findings.recovery.action == "rewind" and findings.recovery.back_to_control("rewind")


def test_two_runs_are_equal(make_lab, markov_corpus):
    first, second = run(make_lab("shuffle"), markov_corpus), run(make_lab("shuffle"), markov_corpus)
    assert first.recovery.policies["rewind_and_skip"] == second.recovery.policies["rewind_and_skip"]
    assert first.found.batch == second.found.batch
    assert first.found.cross == second.found.cross and first.incident.rows == second.incident.rows


def test_noise_between_replays_is_the_tolerance(make_lab, markov_corpus):
    """A GPU's sums differ a little from run to run; that is no fault, and no excuse for a large one."""
    noisy = run(make_lab("garbage", noise=1e-6), markov_corpus).found
    assert noisy.reproduction.reproduced and not noisy.reproduction.bit_for_bit
    assert 0 < noisy.reproduction.largest_difference_nats <= noisy.reproduction.tolerance_nats
    assert noisy.verdict.cause == "dataset_corruption"
    flipped = dataclasses.replace(make_lab("bit_flip", noise=1e-6), bit_stable=False)
    assert not run(flipped, markov_corpus).found.reproduction.reproduced


def test_clean_run_is_no_incident(make_lab, markov_corpus):
    with pytest.raises(UserError, match="no confirmed incident"):
        run(make_lab("garbage", first=10_000, last=10_000), markov_corpus, steps=200)


def test_a_run_may_start_where_another_was_calm(make_lab):
    whole = watch(make_lab("garbage"), SpikeMonitor(), 220)
    calm = calm_run(make_lab("garbage"), SpikeMonitor(), 150)
    resumed = watch(make_lab("garbage"), SpikeMonitor(), 220, start=calm)
    assert resumed.rows == whole.rows and resumed.alarms == whole.alarms
    assert resumed.before.step == whole.before.step == 150


def test_skipping_moves_later_batches_up():
    assert [batch_after_skip(step, (5, 7)) for step in (4, 5, 6)] == [4, 8, 9]
