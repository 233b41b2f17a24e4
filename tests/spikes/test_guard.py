"""An alarm is a note; only held-out text makes it a spike, and only a spike costs an update or data."""

import json
import math

import numpy as np
import pytest

from x1_pretrain.run_state import State
from x1_pretrain.spikes.guard import CONFIRM_AFTER, PROBE_EVERY, SpikeGuard


class Run:
    """Clean noise, a spike of loss at some steps, and a probe that shows damage or none."""

    def __init__(self, policy: str = "observe", probe: float = 2.5) -> None:
        self.guard, self.probe, self.probes, self.step = SpikeGuard(policy), probe, 0, 0
        self.rng = np.random.default_rng(0)

    def measure(self) -> float:
        self.probes += 1
        return self.probe

    def go(self, steps: int, loss: float = 2.5, norm: float = 1.0):
        found = []
        for _ in range(steps):
            self.step += 1
            noise = 0.03 * self.rng.standard_normal()
            found.append(self.guard.observe(self.step, loss + noise, norm, self.measure))
        return found


def test_a_calm_run_is_probed_every_so_often():
    run = Run()
    assert run.go(2 * PROBE_EVERY) == [(None, None)] * (2 * PROBE_EVERY)
    assert run.probes == 2 and run.guard.probe_nats == 2.5


def test_an_outlier_without_damage_is_logged_only():
    run = Run()
    run.go(100)
    ((alarm, spike),) = run.go(1, loss=6.0)
    assert alarm.reason == "loss" and spike is None
    assert all(found == (None, None) for found in run.go(20))
    assert run.guard.dismissed == 1


@pytest.mark.parametrize("after", [2.7, math.nan])
def test_damage_confirms_the_spike_once(after):
    run = Run()
    run.go(100)
    run.go(4, loss=6.0)
    run.probe = after
    found = [spike for _, spike in run.go(20) if spike is not None]
    assert [(s.first_step, s.last_step, s.probe_before_nats) for s in found] == [(101, 104, 2.5)]
    json.dumps(found[0].as_record(0, "observe"), allow_nan=False)
    assert "steps 101 to 104" in str(found[0])


def test_a_spike_that_lasts_is_one_spike_and_the_next_another():
    run = Run()
    run.go(100)
    run.probe = 3.5
    assert sum(spike is not None for _, spike in run.go(40, loss=6.0)) == 1
    run.probe = 2.5
    assert sum(spike is not None for _, spike in run.go(60)) == 0
    run.go(2, loss=6.0)
    run.probe = 3.0
    assert sum(spike is not None for _, spike in run.go(20)) == 1


def test_skip_forbids_flagged_updates_of_a_confirmed_spike_only():
    run = Run("skip")
    run.go(100)
    assert not run.guard.vetoes(6.0, 1.0)
    run.probe = 3.5
    run.go(CONFIRM_AFTER + 1, loss=6.0)
    assert run.guard.vetoes(6.0, 1.0) and run.guard.vetoes(2.5, 50.0)
    assert not run.guard.vetoes(2.5, 1.0)
    run.go(CONFIRM_AFTER)
    assert not run.guard.vetoes(6.0, 1.0)
    assert not Run("observe").guard.vetoes(1e9, 1e9)


def test_without_a_probe_before_it_nothing_is_confirmed():
    run = Run()
    run.go(PROBE_EVERY - 1)
    assert run.guard.observe(PROBE_EVERY - 1, math.nan, 1.0, run.measure)[0].reason == "nonfinite"
    run.probe = 9.0
    assert all(spike is None for _, spike in run.go(9))
    assert run.guard.dismissed == 1


def test_state_round_trip_is_exact():
    whole, cut = Run(), Run()
    for run in (whole, cut):
        run.go(100)
        run.probe = 3.5
        run.go(5, loss=6.0)
    resumed = SpikeGuard()
    resumed.load_state_dict(json.loads(json.dumps(cut.guard.state_dict(), allow_nan=False)))
    cut.guard = resumed
    assert repr(whole.go(60)) == repr(cut.go(60))
    assert whole.guard.state_dict() == cut.guard.state_dict()


def test_skipped_ranges_of_data_never_overlap():
    state = State(skipped_data=[[10, 5], [40, 5]])
    assert state.skipping(20, 30) == [[10, 5], [20, 10], [40, 5]]
    assert state.skipping(12, 50) == [[10, 40]]
    again = State(skipped_data=State(skipped_data=[[10, 5]]).skipping(20, 30))
    assert [again.sequence(n) for n in (9, 10, 14, 15)] == [9, 15, 19, 30]
