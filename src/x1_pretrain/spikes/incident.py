"""One incident from end to end: it happens, is noticed, replayed, explained, and recovered from."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from x1_pretrain.spikes.batch_evidence import BatchEvidence, examine
from x1_pretrain.spikes.data_tests import Corpus
from x1_pretrain.spikes.diagnosis import Evidence, Verdict, diagnose
from x1_pretrain.spikes.lab import Lab, Row, State
from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor
from x1_pretrain.spikes.replays import (
    CrossEvaluation,
    Replay,
    cross_evaluate,
    reproduces,
    run_arms,
)
from x1_pretrain.spikes.watch import CAUSE_LEADS_BY, Incident, watch

# Batches skipped on each side of the offending range: its neighbours may have done harm too.
SKIP_MARGIN = 1
PROBE_EVERY = 10
STEPS_AFTER_ALARM = 3  # of an arm, beyond the last alarm


@dataclass(frozen=True)
class Continuation:
    """A run continued to its end under one policy, with the probe every 10 steps and at the end."""

    name: str
    rows: tuple[Row, ...]
    probes_nats: tuple[tuple[int, float], ...]

    @property
    def final_probe_nats(self) -> float:
        return self.probes_nats[-1][1]


@dataclass(frozen=True)
class Findings:
    """Everything that was measured, and the verdict."""

    incident: Incident
    offending: tuple[int, int]
    cross: CrossEvaluation
    replays: dict[str, Replay]
    reproduced: bool
    batch: BatchEvidence
    verdict: Verdict
    skipped: tuple[int, int]
    control: Continuation
    recovery: Continuation
    no_action: Continuation


def investigate(
    lab: Lab,
    corpus: Corpus,
    monitor: SpikeMonitor,
    steps: int,
    notice: Callable[[Alarm], None] = lambda alarm: None,
) -> Findings:
    """Run the incident, the replays, the diagnosis and the recovery; `steps` is the whole run."""
    incident = watch(lab, monitor, steps, notice)
    before, early = incident.before, incident.early
    first, last = incident.alarms[0].step, incident.alarms[-1].step
    suspects = range(max(before.step + 1, first - CAUSE_LEADS_BY), last + 1)
    cross = cross_evaluate(lab, before, early, suspects, monitor.min_rise_nats)
    window = range(before.step + 1, min(last + STEPS_AFTER_ALARM, incident.confirmed_step) + 1)
    spike_rise = max(monitor.min_rise_nats, monitor.threshold * cross.control_sd_before_nats)
    replays = run_arms(lab, before, early, window, spike_rise)
    logged = [row for row in incident.rows if row.step in window]
    reproduced = reproduces(logged, replays["same"].rows)
    worst = examine(lab, corpus, before, cross.worst.batch)
    verdict = diagnose(_evidence(incident, cross, replays, reproduced, worst))
    offending = cross.offending or (first, last)
    skipped = (offending[0] - SKIP_MARGIN, offending[1] + SKIP_MARGIN)
    return Findings(
        incident=incident,
        offending=offending,
        cross=cross,
        replays=replays,
        reproduced=reproduced,
        batch=worst,
        verdict=verdict,
        skipped=skipped,
        control=_continue(replace(lab, stream=lab.stream.without_injection()), "control", before, steps),
        recovery=_continue(lab, "recovery", before, steps, skipped),
        no_action=_continue(lab, "no_action", incident.at_confirmation, steps),
    )


def batch_after_skip(step: int, skipped: tuple[int, int]) -> int:
    """Which batch a step reads once the batches of a range are skipped: later ones move up."""
    first, last = skipped
    return step if step < first else step + (last - first + 1)


def _continue(
    lab: Lab, name: str, state: State, steps: int, skipped: tuple[int, int] | None = None
) -> Continuation:
    """From a state to the end of the run, with the same number of tokens under every policy."""
    lab.trainer.restore(state.snapshot)
    rows, probes = [], [(state.step, state.probe_nats)]
    number_of = None if skipped is None else lambda step: batch_after_skip(step, skipped)
    for row in lab.train(range(state.step + 1, steps + 1), number_of):
        rows.append(row)
        if row.step % PROBE_EVERY == 0 or row.step == steps:
            probes.append((row.step, lab.probe()))
    return Continuation(name, tuple(rows), tuple(probes))


def _evidence(
    incident: Incident,
    cross: CrossEvaluation,
    replays: dict[str, Replay],
    reproduced: bool,
    worst: BatchEvidence,
) -> Evidence:
    rms = [row.result.update_rms for row in replays["same"].rows]
    return Evidence(
        nonfinite=any(alarm.reason == "nonfinite" for alarm in incident.alarms),
        reproduced=reproduced,
        delta_before=cross.worst.delta_before,
        delta_early=cross.worst.delta_early,
        same=replays["same"].arm,
        other_batches=replays["other_batches"].arm,
        other_state=replays["other_state"].arm,
        lower_lr=replays["lower_lr"].arm,
        update_clip=replays["update_clip"].arm,
        update_rms=max((value for value in rms if value is not None), default=None),
        data=worst.evidence,
    )
