"""From a suspicion to a verdict: forward passes, replays, tests on the tokens, and the rule."""

import itertools
from dataclasses import dataclass

from x1_pretrain.spikes.batch_evidence import BatchEvidence, examine
from x1_pretrain.spikes.cross_evaluation import CrossEvaluation, cross_evaluate
from x1_pretrain.spikes.data_tests import Corpus
from x1_pretrain.spikes.diagnosis import Verdict, diagnose
from x1_pretrain.spikes.evidence import Evidence, Reproduction
from x1_pretrain.spikes.lab import Lab, Row, State
from x1_pretrain.spikes.monitor import SpikeMonitor
from x1_pretrain.spikes.replays import Replay, reproduction, run_arms, trusted_lr_scale
from x1_pretrain.spikes.watch import CAUSE_LEADS_BY, Incident

STEPS_AFTER_ALARM = 3  # of an arm, beyond the last alarm
LR_RISE = 1.01  # from one step to the next: more than rounding


@dataclass(frozen=True)
class Suspicion:
    """Steps `first` to `last` of a run are in question; `rows` is its log, up to some steps after them."""

    rows: tuple[Row, ...]
    first: int
    last: int
    nonfinite: bool
    before: State
    early: State


@dataclass(frozen=True)
class Investigation:
    """What was measured, and the verdict.

    `offending`: the batches that stand out, or the steps in question if none does.
    """

    cross: CrossEvaluation
    replays: dict[str, Replay]
    reproduction: Reproduction
    batch: BatchEvidence
    trusted_lr_scale: float
    verdict: Verdict
    offending: tuple[int, int]


def suspicion(incident: Incident) -> Suspicion:
    """What a confirmed incident puts in question."""
    return Suspicion(
        rows=incident.rows,
        first=incident.alarms[0].step,
        last=incident.alarms[-1].step,
        nonfinite=any(alarm.reason == "nonfinite" for alarm in incident.alarms),
        before=incident.before,
        early=incident.early,
    )


def investigate(lab: Lab, corpus: Corpus, case: Suspicion, monitor: SpikeMonitor) -> Investigation:
    """Find the cause. `monitor` gives the limits of what counts as a spike."""
    before, early = case.before, case.early
    suspects = range(max(before.step + 1, case.first - CAUSE_LEADS_BY), case.last + 1)
    cross = cross_evaluate(lab, before, early, suspects, monitor.min_rise_nats)
    worst = examine(lab, corpus, before, cross.worst.batch)
    window = range(before.step + 1, min(case.last + STEPS_AFTER_ALARM, case.rows[-1].step) + 1)
    spike_rise = max(monitor.min_rise_nats, monitor.threshold * cross.control_sd_before_nats)
    trusted = trusted_lr_scale(case.rows, before)
    has_rare = cross.offending is not None and 0 < worst.evidence.rare_target_share < 1
    rare = corpus.rare if has_rare else None
    replays = run_arms(lab, before, early, window, spike_rise, trusted, rare)
    logged = [row for row in case.rows if row.step in window]
    repeated = reproduction(logged, replays["same"].rows, replays["same_again"].rows, lab.bit_stable)
    evidence = _evidence(case, cross, replays, repeated, worst, logged, trusted)
    return Investigation(
        cross=cross,
        replays=replays,
        reproduction=repeated,
        batch=worst,
        trusted_lr_scale=trusted,
        verdict=diagnose(evidence),
        offending=cross.offending or (case.first, case.last),
    )


def _evidence(
    case: Suspicion,
    cross: CrossEvaluation,
    replays: dict[str, Replay],
    repeated: Reproduction,
    worst: BatchEvidence,
    logged: list[Row],
    trusted: float,
) -> Evidence:
    rms = [row.result.update_rms for row in replays["same"].rows]
    names = ("same", "other_batches", "other_state", "lower_lr", "trusted_lr", "update_clip", "masked_rare")
    return Evidence(
        nonfinite=case.nonfinite,
        reproduced=repeated.reproduced,
        # A batch stands out only if it also rises far enough: the spread of a few controls may be small.
        delta_before=cross.worst.delta_before if cross.offending else min(cross.worst.delta_before, 0.0),
        delta_early=cross.worst.delta_early,
        lr_highest=max(row.lr_scale for row in logged) / trusted,
        lr_rises=sum(b.lr_scale > LR_RISE * a.lr_scale for a, b in itertools.pairwise(logged)),
        **{name: replays[name].arm for name in names if name in replays},
        update_rms=max((value for value in rms if value is not None), default=None),
        data=worst.evidence,
    )
