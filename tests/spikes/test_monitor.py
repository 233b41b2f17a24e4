"""The monitor's promises: a NaN never blinds it, a spike never masks the next, state is exact."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spikes.reference import reference
from x1_pretrain.spikes.monitor import SpikeMonitor


def warm(monitor: SpikeMonitor, steps: int = 200, level: float = 2.5, seed: int = 0) -> int:
    """Show clean noise (sd 0.05 nats, 15% in gradient norm); returns the next step."""
    rng = np.random.default_rng(seed)
    for step in range(1, steps + 1):
        loss, norm = level + 0.05 * rng.standard_normal(), math.exp(0.15 * rng.standard_normal())
        assert monitor.observe(step, float(loss), norm) is None
    return steps + 1


def test_silent_until_enough_values():
    monitor = SpikeMonitor()
    for step in range(1, 64):
        monitor.observe(step, 2.5 + 0.01 * (step % 3), 1.0)
    assert monitor.observe(64, 9.0, 1.0) is None


def test_loss_spike_names_value_and_window():
    monitor = SpikeMonitor()
    step = warm(monitor)
    alarm = monitor.observe(step, 5.1, 1.0)
    assert (alarm.step, alarm.reason, alarm.value) == (step, "loss", 5.1)
    assert alarm.median == pytest.approx(2.5, abs=0.02)
    assert alarm.z == pytest.approx((5.1 - alarm.median) / alarm.sd)
    json.dumps(alarm.as_dict(), allow_nan=False)


def test_small_rise_is_no_alarm_however_quiet_the_window():
    monitor = SpikeMonitor()
    for step in range(100):
        monitor.observe(step, 2.5, 1.0)
    assert monitor.observe(100, 2.79, 1.0) is None
    assert monitor.observe(101, 2.81, 1.0).reason == "loss"


def test_downward_anomaly_and_gradient_norm():
    monitor = SpikeMonitor()
    step = warm(monitor)
    assert monitor.observe(step, 0.001, 1.0).reason == "loss_low"
    alarm = monitor.observe(step + 1, 2.5, 50.0)
    assert (alarm.reason, alarm.value) == ("grad_norm", pytest.approx(50.0))
    assert monitor.observe(step + 2, 2.5, 0.001) is None  # a small norm harms nobody


def test_zero_or_missing_gradient_norm_is_passed_over():
    monitor = SpikeMonitor()
    for step in range(200):
        assert monitor.observe(step, 2.5, 0.0 if step % 2 else None) is None
    assert monitor.observe(200, 5.0).reason == "loss"


@pytest.mark.parametrize("bad", [(math.nan, 1.0), (math.inf, 1.0), (2.5, math.nan), (2.5, math.inf)])
def test_nonfinite_is_an_alarm_and_never_blinds(bad):
    monitor = SpikeMonitor()
    assert monitor.observe(1, *bad).reason == "nonfinite"  # even before the window is full
    step = warm(monitor)
    before = monitor.state_dict()
    for _ in range(300):
        alarm = monitor.observe(step, *bad)
        assert alarm.reason == "nonfinite"
        json.dumps(alarm.as_dict(), allow_nan=False)
    assert monitor.state_dict() == before
    assert monitor.observe(step, 4.0, 1.0).reason == "loss"


def test_spike_does_not_mask_the_next_one():
    monitor = SpikeMonitor()
    step = warm(monitor)
    first = monitor.observe(step, 10.0, 30.0)
    for later in range(1, 40):
        monitor.observe(step + later, 9.0, 20.0)
    again = monitor.observe(step + 40, 3.2, 1.0)
    assert again.reason == "loss" and again.median == first.median


def test_new_level_is_accepted_after_min_values_flags_in_a_row():
    monitor = SpikeMonitor()
    step = warm(monitor)
    alarms = [monitor.observe(step + i, 4.0 + 0.01 * (i % 5), 1.0) for i in range(100)]
    assert all(alarms[:64]) and not any(alarms[64:])


def test_false_alarms_on_clean_noise_are_rare():
    rng = np.random.default_rng(1)
    monitor = SpikeMonitor()
    trend = 4.0 * np.exp(-np.arange(6000) / 400) + 2.8  # a loss that falls as at a run's start
    losses = trend + 0.08 * rng.standard_normal(6000)
    norms = np.exp(0.25 * rng.standard_normal(6000))
    flags = sum(monitor.observe(i, float(losses[i]), float(norms[i])) is not None for i in range(6000))
    assert flags <= 2


finite = st.floats(0.0, 20.0, allow_nan=False)
values = st.one_of(finite, st.sampled_from([math.nan, math.inf, 0.0]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(values, values), max_size=60), st.integers(0, 60))
def test_state_round_trip_is_exact(history, cut):
    monitor = SpikeMonitor(window=12, min_values=5)
    for step, pair in enumerate(history[:cut]):
        monitor.observe(step, *pair)
    resumed = SpikeMonitor(window=12, min_values=5)
    resumed.load_state_dict(json.loads(json.dumps(monitor.state_dict(), allow_nan=False)))
    for step, pair in enumerate(history[cut:]):
        assert repr(monitor.observe(step, *pair)) == repr(resumed.observe(step, *pair))
    assert monitor.state_dict() == resumed.state_dict()


def test_state_of_other_settings_is_refused():
    with pytest.raises(ValueError, match="settings"):
        SpikeMonitor(threshold=5.0).load_state_dict(SpikeMonitor().state_dict())
    with pytest.raises(ValueError, match="min_values"):
        SpikeMonitor(window=10, min_values=20)


def test_bloom_176b_is_flagged_by_gradient_norm_before_the_loss():
    """The extract starts 5 steps before the spike, so its level (0.2 to 0.27) is prepended."""
    lines = reference("cases.jsonl").read_text(encoding="utf-8").splitlines()
    case = next(c for c in map(json.loads, lines) if c["id"] == "bloom176b-31219")
    monitor = SpikeMonitor()
    rng = np.random.default_rng(0)
    for step in range(31086, 31214):
        norm = 0.24 * math.exp(0.15 * rng.standard_normal())
        monitor.observe(step, 2.21 + 0.03 * float(rng.standard_normal()), norm)
    alarms = [monitor.observe(*row) for row in case["series"]]
    flagged = {alarm.step: alarm.reason for alarm in alarms if alarm}
    assert min(flagged) <= 31219 - 3
    assert flagged[min(flagged)] == "grad_norm"
    assert flagged[31219] == "loss"
    assert 31250 not in flagged and 31251 not in flagged


def test_modded_nanogpt_batch_outlier_is_found_in_every_run():
    path = reference("modded_valueembed_10runs_steps600_1200.csv")
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for run in [name for name in rows[0] if name != "step"]:
        monitor = SpikeMonitor()
        alarms = [monitor.observe(int(row["step"]), float(row[run])) for row in rows if row[run]]
        steps = {alarm.step for alarm in alarms if alarm}
        assert 946 in steps
        assert len(steps) <= 8
