"""Findings as plain JSON: what spike.json holds, and the series behind its figure."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from x1_pretrain.spikes.arrays import finite, token_counts
from x1_pretrain.spikes.batch_evidence import BatchEvidence
from x1_pretrain.spikes.cross_evaluation import CONTROLS, CrossEvaluation
from x1_pretrain.spikes.data_tests import Corpus
from x1_pretrain.spikes.incident import Findings
from x1_pretrain.spikes.lab import Row, Stream
from x1_pretrain.spikes.recovery import Recovery
from x1_pretrain.spikes.replays import Replay

LOG_STEPS_AROUND = 8
TOP_TOKENS = 8
QUOTED_TOKENS, QUOTED_DOCUMENTS, QUOTED_BATCHES = 24, 3, 8


@dataclass(frozen=True)
class Text:
    """Ids back to text, and the ids of the documents that a batch's first sequence is cut from."""

    decode: Callable[[Sequence[int]], str]
    documents: Callable[[int], Sequence[str]]


@dataclass(frozen=True)
class Facts:
    """What the findings do not know of themselves: which run this was."""

    run_id: str
    model: str
    seed: int
    N: int
    steps: int
    batch_tokens: int
    warmup_steps: int
    peak_lr: float


def as_json(findings: Findings, facts: Facts, stream: Stream, corpus: Corpus, text: Text) -> dict[str, Any]:
    """The content of spike.json, without the time of detection (which is no part of the result)."""
    incident, found, injection = findings.incident, findings.found, stream.injection
    first_alarm, verdict, truth = incident.alarms[0], found.verdict, injection.truth
    on_batches = truth.on == "batch"
    return {
        "run": asdict(facts),
        "injection": {
            "injected": True,
            "kind": injection.kind,
            "on": truth.on,
            "first": injection.first,
            "last": injection.last if on_batches else injection.first,
        },
        "detection": {
            "step": first_alarm.step,
            "tokens": first_alarm.step * facts.batch_tokens,
            "reason": first_alarm.reason,
            "alarms": [alarm.as_dict() for alarm in incident.alarms],
            "dismissed_alarms": [alarm.as_dict() for alarm in incident.dismissed],
            "confirmed_step": incident.confirmed_step,
            "confirmed_by": incident.confirmed_by,
            "probe_before_nats": finite(incident.before.probe_nats),
            "probe_at_confirmation_nats": finite(incident.probe_nats),
            "detected_utc": None,
        },
        "grad_norm_log": _log_around(findings, facts),
        "cross_evaluation": _cross_evaluation(found.cross),
        "offending_batches": list(found.offending),
        "offending_stand_out": found.cross.offending is not None,
        "batch_tests": _batch_tests(found.batch),
        "histogram": _histogram(stream, corpus, found.offending, text.decode),
        "quotes": _quotes(stream, found.offending, text),
        "reproduction": {
            **asdict(found.reproduction),
            "largest_difference_nats": finite(found.reproduction.largest_difference_nats),
            "tolerance_nats": finite(found.reproduction.tolerance_nats),
        },
        "arms": [_arm(replay) for replay in found.replays.values()],
        "verdict": {
            "cause": verdict.cause,
            "subtype": verdict.subtype,
            "rule": verdict.rule,
            "agreeing_arms": verdict.agreeing,
            "arms": verdict.arms,
            "confidence": verdict.confidence,
        },
        "truth": {
            "cause": truth.cause,
            "subtype": truth.subtype,
            "cause_right": verdict.cause == truth.cause,
            "subtype_right": (verdict.cause, verdict.subtype) == (truth.cause, truth.subtype),
            "range_right": found.offending == (injection.first, injection.last) if on_batches else None,
        },
        "recovery": _recovery(findings.recovery, incident.before.step, facts),
    }


def series(findings: Findings) -> dict[str, Any]:
    """What the figure draws: the log of every step taken without recovery, and the probe losses."""
    recovery = findings.recovery
    rows = (*findings.incident.rows, *recovery.policies["no_action"].rows)
    return {
        "log": [[row.step, finite(row.result.loss_nats), finite(row.result.grad_norm)] for row in rows],
        "probes": {
            run.name: [[step, finite(probe)] for step, probe in run.probes_nats]
            for run in (recovery.control, *recovery.policies.values())
        },
    }


def _log_around(findings: Findings, facts: Facts) -> list[dict[str, Any]]:
    incident = findings.incident
    flagged = {alarm.step: alarm.reason for alarm in incident.alarms}
    first = incident.alarms[0].step - LOG_STEPS_AROUND
    no_action = findings.recovery.policies["no_action"]
    rows = [row for row in (*incident.rows, *no_action.rows) if row.step >= first]
    last = incident.alarms[-1].step + LOG_STEPS_AROUND
    return [_log_row(row, facts, flagged) for row in rows if row.step <= last]


def _log_row(row: Row, facts: Facts, flagged: dict[int, str]) -> dict[str, Any]:
    return {
        "step": row.step,
        "batch": row.batch,
        "loss_nats": finite(row.result.loss_nats),
        "grad_norm": finite(row.result.grad_norm),
        "lr": row.lr_scale * facts.peak_lr,
        "alarm": flagged.get(row.step),
    }


def _cross_evaluation(cross: CrossEvaluation) -> dict[str, Any]:
    return {
        "controls": CONTROLS,
        "before_step": cross.before_step,
        "early_step": cross.early_step,
        "control_median_before_nats": cross.control_median_before_nats,
        "control_sd_before_nats": cross.control_sd_before_nats,
        "control_median_early_nats": cross.control_median_early_nats,
        "control_sd_early_nats": cross.control_sd_early_nats,
        "suspects": [asdict(suspect) for suspect in cross.suspects],
    }


def _batch_tests(batch: BatchEvidence) -> dict[str, Any]:
    tests = {
        name: {
            "value": value,
            "normal_median": getattr(batch.normal_medians, name),
            "z": batch.z[name],
        }
        for name, value in asdict(batch.statistics).items()
    }
    return {
        "batch": batch.batch,
        **tests,
        "rare_target_share": batch.evidence.rare_target_share,
        "rare_loss_share": batch.evidence.rare_loss_share,
        "rest_loss_z": batch.evidence.rest_loss_z,
        "duplicate_share": batch.evidence.duplicate_share,
    }


def _histogram(
    stream: Stream, corpus: Corpus, offending: tuple[int, int], decode: Callable[[Sequence[int]], str]
) -> list[dict[str, Any]]:
    """The tokens that add most to the KL divergence between the batches and the corpus."""
    counts = token_counts(stream, offending)
    expected = corpus.unigram_probabilities * counts.sum()
    share = counts * np.log(np.maximum(counts, 1) / expected)
    top = np.argsort(-share, kind="stable")[:TOP_TOKENS]
    return [
        {
            "id": int(token),
            "text": decode([int(token)]),
            "count": int(counts[token]),
            "expected": float(expected[token]),
        }
        for token in top
    ]


def _quotes(stream: Stream, offending: tuple[int, int], text: Text) -> list[dict[str, Any]]:
    """How the first sequence of each offending batch begins, and what was scheduled there."""
    return [
        {
            "batch": n,
            "text": text.decode([int(token) for token in stream.batch(n)[0, :QUOTED_TOKENS]]),
            "documents": list(text.documents(n))[:QUOTED_DOCUMENTS],
        }
        for n in range(offending[0], min(offending[1], offending[0] + QUOTED_BATCHES - 1) + 1)
    ]


def _arm(replay: Replay) -> dict[str, Any]:
    arm = replay.arm
    rms = [row.result.update_rms for row in replay.rows if row.result.update_rms is not None]
    return {
        "name": replay.name,
        "question": replay.question,
        "state_step": replay.state_step,
        "first_batch": replay.rows[0].batch,
        "last_batch": replay.rows[-1].batch,
        "spikes": arm.spikes,
        "base_loss_nats": finite(replay.base_nats),
        "peak_loss_nats": finite(arm.peak_loss_nats),
        "peak_grad_norm": finite(float(np.max([row.result.grad_norm for row in replay.rows]))),
        "probe_before_nats": finite(arm.probe_before_nats),
        "probe_peak_nats": finite(arm.probe_peak_nats),
        "damage_nats": finite(arm.excess_nats),
        "update_rms": finite(max(rms)) if rms else None,
    }


def _recovery(recovery: Recovery, rewound_to_step: int, facts: Facts) -> dict[str, Any]:
    action = recovery.action
    return {
        "action": action,
        "rewound_to_step": None if action == "no_action" else rewound_to_step,
        "skipped_batches": list(recovery.skipped) if action == "rewind_and_skip" else None,
        "final_step": facts.steps,
        "tokens": facts.steps * facts.batch_tokens,
        "control_probe_nats": finite(recovery.control.final_probe_nats),
        "policies": [
            {
                "name": name,
                "final_probe_nats": finite(run.final_probe_nats),
                "relative_to_control": finite(recovery.relative(name)),
            }
            for name, run in recovery.policies.items()
        ],
        "final_probe_nats": finite(recovery.policies[action].final_probe_nats),
        "relative_to_control": finite(recovery.relative(action)),
        "recovered": recovery.back_to_control(action),
        "needed": not recovery.back_to_control("no_action"),
        "best": recovery.best,
    }
