"""The whole procedure on a toy trainer: the injected batches are found, named and skipped."""

import pytest

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.incident import batch_after_skip, investigate
from x1_pretrain.spikes.monitor import SpikeMonitor


@pytest.mark.parametrize(
    ("injection", "subtype"),
    [("garbage", "foreign_tokens"), ("shuffle", "broken_order"), ("repeat", "repeated_ngram")],
)
def test_injection_is_found_named_and_recovered_from(make_lab, markov_corpus, injection, subtype):
    findings = investigate(make_lab(injection), markov_corpus, SpikeMonitor(), steps=260)
    assert findings.incident.alarms[0].step == 170
    assert findings.offending == (170, 173)
    assert findings.reproduced
    assert (findings.verdict.cause, findings.verdict.subtype) == ("dataset_corruption", subtype)
    assert findings.verdict.agreeing == findings.verdict.arms
    assert not findings.replays["other_batches"].arm.spikes
    assert findings.replays["other_state"].arm.spikes
    recovery, control = findings.recovery, findings.control
    assert recovery.final_probe_nats == pytest.approx(control.final_probe_nats, rel=0.02)
    assert len(recovery.rows) == len(control.rows)
    assert not {row.batch for row in recovery.rows} & set(range(169, 175))
    assert [row.step for row in findings.no_action.rows][-1] == 260


def test_two_runs_are_equal(make_lab, markov_corpus):
    first = investigate(make_lab("shuffle"), markov_corpus, SpikeMonitor(), steps=220)
    second = investigate(make_lab("shuffle"), markov_corpus, SpikeMonitor(), steps=220)
    assert first.recovery == second.recovery and first.batch == second.batch
    assert first.cross == second.cross and first.incident.rows == second.incident.rows


def test_a_trainer_that_does_not_repeat_itself_is_not_explained_by_data(make_lab, markov_corpus):
    findings = investigate(make_lab("garbage", noise=1e-6), markov_corpus, SpikeMonitor(), steps=220)
    assert not findings.reproduced
    assert (findings.verdict.cause, findings.verdict.subtype) == ("numeric", "not_reproducible")


def test_clean_run_is_no_incident(make_lab, markov_corpus):
    with pytest.raises(UserError, match="no confirmed incident"):
        investigate(make_lab("garbage", first=0, last=-1), markov_corpus, SpikeMonitor(), steps=200)


def test_skipping_moves_later_batches_up():
    assert [batch_after_skip(step, (5, 7)) for step in (4, 5, 6)] == [4, 8, 9]
