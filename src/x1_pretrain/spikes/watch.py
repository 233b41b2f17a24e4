"""The incident run: train under the monitor's eye, and decide when alarms make an incident.

An alarm is not an incident: one outlier that the held-out probe does not confirm is logged only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.guard import CONFIRM_AFTER, CONFIRM_PROBE_NATS
from x1_pretrain.spikes.lab import Lab, Row, State
from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor

SNAPSHOT_EVERY, SNAPSHOTS_KEPT = 50, 6
# An alarm opens a case; some steps later it is an incident if the probe rose, or if several steps were
# flagged, or if a number was not finite. (The trainer, whose action costs data, believes the probe alone.)
CONFIRM_ALARMS = 3
# Causes precede their alarm by up to 8 steps (an under-estimated second moment: StableAdamW).
CAUSE_LEADS_BY = 8


@dataclass(frozen=True)
class Progress:
    """A run so far, nothing wrong with it yet: its log, its saved states, what the monitor remembers."""

    rows: tuple[Row, ...]
    states: tuple[State, ...]
    monitor: dict[str, object]


@dataclass(frozen=True)
class Incident:
    """A confirmed incident. `rows` is the log up to the confirmation; `alarms` are its own."""

    rows: tuple[Row, ...]
    alarms: tuple[Alarm, ...]
    dismissed: tuple[Alarm, ...]  # earlier alarms that were not confirmed
    confirmed_by: str
    confirmed_step: int
    probe_nats: float
    before: State
    early: State
    at_confirmation: State


def calm_run(lab: Lab, monitor: SpikeMonitor, steps: int) -> Progress:
    """Train from scratch for so many steps, before anything is injected; alarms are not looked at."""
    rows, states = [], []
    for row in lab.train(range(1, steps + 1), watch=True, live=True):
        rows.append(row)
        monitor.observe(row.step, row.result.loss_nats, row.result.grad_norm, row.result.update_rms)
        if row.step % SNAPSHOT_EVERY == 0:
            states.append(State(row.step, lab.trainer.snapshot(), lab.probe()))
    return Progress(tuple(rows), tuple(states[-SNAPSHOTS_KEPT:]), monitor.state_dict())


def states_around(states: list[State], first_step: int) -> tuple[State, State] | None:
    """The newest state at least 8 steps before a step, and one of about half its age; None: too few."""
    usable = [state for state in states if state.step <= first_step - CAUSE_LEADS_BY]
    if len(usable) < 2:
        return None
    before = usable[-1]
    return before, min(usable[:-1], key=lambda state: abs(state.step - before.step / 2))


def watch(
    lab: Lab,
    monitor: SpikeMonitor,
    steps: int,
    notice: Callable[[Alarm], None] = lambda alarm: None,
    start: Progress | None = None,
) -> Incident | None:
    """Train until an incident is confirmed; None if `steps` pass without one.

    From scratch, or from where `start` ends (its last state must be of its last step). `notice` is told of
    every alarm at once.
    """
    rows: list[Row] = []
    states: list[State] = []
    if start is not None:
        rows, states = list(start.rows), list(start.states)
        lab.trainer.restore(states[-1].snapshot)
        monitor.load_state_dict(start.monitor)
    alarms: list[Alarm] = []
    dismissed: list[Alarm] = []
    for row in lab.train(range(len(rows) + 1, steps + 1), watch=True, live=True):
        rows.append(row)
        result = row.result
        alarm = monitor.observe(row.step, result.loss_nats, result.grad_norm, result.update_rms)
        if alarm is not None:
            alarms.append(alarm)
            notice(alarm)
        if not alarms and row.step % SNAPSHOT_EVERY == 0:
            states = [*states[1 - SNAPSHOTS_KEPT :], State(row.step, lab.trainer.snapshot(), lab.probe())]
        if not alarms or row.step < alarms[0].step + CONFIRM_AFTER:
            continue
        around, probe = states_around(states, alarms[0].step), lab.probe()
        reason = _confirmation(alarms, probe, around[0] if around else None)
        if reason is None or around is None:
            dismissed.extend(alarms)
            alarms.clear()
            continue
        return Incident(
            rows=tuple(rows),
            alarms=tuple(alarms),
            dismissed=tuple(dismissed),
            confirmed_by=reason,
            confirmed_step=row.step,
            probe_nats=probe,
            before=around[0],
            early=around[1],
            at_confirmation=State(row.step, lab.trainer.snapshot(), probe),
        )
    return None


def no_incident(lab: Lab, steps: int) -> UserError:
    """What to say where an injection led to no incident."""
    injection = lab.stream.injection
    return UserError(
        f"profile key spike: {steps} steps with the injection {injection.kind!r} from step {injection.first} "
        "led to no confirmed incident; raise spike.batches, at_step or steps"
    )


def _confirmation(alarms: list[Alarm], probe_nats: float, before: State | None) -> str | None:
    """What makes these alarms an incident: `nonfinite`, `probe`, `alarms`, or nothing."""
    if any(alarm.reason == "nonfinite" for alarm in alarms):
        return "nonfinite"
    if before is not None and not probe_nats - before.probe_nats <= CONFIRM_PROBE_NATS:
        return "probe"
    return "alarms" if len(alarms) >= CONFIRM_ALARMS else None
