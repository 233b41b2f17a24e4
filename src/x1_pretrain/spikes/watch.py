"""The incident run: train under the monitor's eye, and decide when alarms make an incident.

An alarm is not an incident: one outlier that the held-out probe does not confirm is logged only.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.lab import Lab, Row, State
from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor

SNAPSHOT_EVERY, SNAPSHOTS_KEPT = 50, 6
# An alarm opens a case; this many steps later it is an incident if the probe rose, or if several
# steps were flagged, or if a number was not finite.
CONFIRM_AFTER, CONFIRM_ALARMS, CONFIRM_PROBE_NATS = 8, 3, 0.1
# Causes precede their alarm by up to 8 steps (an under-estimated second moment: StableAdamW).
CAUSE_LEADS_BY = 8


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


def watch(
    lab: Lab,
    monitor: SpikeMonitor,
    steps: int,
    notice: Callable[[Alarm], None] = lambda alarm: None,
) -> Incident:
    """Train from scratch until an incident is confirmed.

    The state to rewind to is the newest snapshot at least 8 steps before the first alarm; `early`
    is the one nearest to half of its age. `notice` is told of every alarm at once. Raises
    `UserError` if `steps` pass without an incident.
    """
    rows: list[Row] = []
    alarms: list[Alarm] = []
    dismissed: list[Alarm] = []
    ring: deque[State] = deque(maxlen=SNAPSHOTS_KEPT)
    for row in lab.train(range(1, steps + 1)):
        rows.append(row)
        alarm = monitor.observe(row.step, row.result.loss_nats, row.result.grad_norm)
        if alarm is not None:
            alarms.append(alarm)
            notice(alarm)
        if not alarms and row.step % SNAPSHOT_EVERY == 0:
            ring.append(State(row.step, lab.trainer.snapshot(), lab.probe()))
        if not alarms or row.step < alarms[0].step + CONFIRM_AFTER:
            continue
        usable = [state for state in ring if state.step <= alarms[0].step - CAUSE_LEADS_BY]
        probe = lab.probe()
        reason = _confirmation(alarms, probe, usable[-1] if usable else None)
        if reason is None or len(usable) < 2:
            dismissed.extend(alarms)
            alarms.clear()
            continue
        before = usable[-1]
        return Incident(
            rows=tuple(rows),
            alarms=tuple(alarms),
            dismissed=tuple(dismissed),
            confirmed_by=reason,
            confirmed_step=row.step,
            probe_nats=probe,
            before=before,
            early=min(usable[:-1], key=lambda state: abs(state.step - before.step / 2)),
            at_confirmation=State(row.step, lab.trainer.snapshot(), probe),
        )
    raise UserError(
        f"profile key spike: {steps} steps with the injection {lab.stream.injection!r} in batches "
        f"{lab.stream.first} to {lab.stream.last} led to no confirmed incident "
        f"({len(dismissed) + len(alarms)} alarms); raise spike.batches, at_step or steps"
    )


def _confirmation(alarms: list[Alarm], probe_nats: float, before: State | None) -> str | None:
    """What makes these alarms an incident: `nonfinite`, `probe`, `alarms`, or nothing."""
    if any(alarm.reason == "nonfinite" for alarm in alarms):
        return "nonfinite"
    if before is not None and not probe_nats - before.probe_nats <= CONFIRM_PROBE_NATS:
        return "probe"
    return "alarms" if len(alarms) >= CONFIRM_ALARMS else None
