"""Remedies, carried out: each goes on to the end of the run, and is compared at equal tokens.

The measure is the loss on held-out text, against a control run that never had the spike. muP's rescale is
not among them: it prevents a learning rate from being wrong after a change of width, and repairs nothing
that has already happened.
"""

import math
import statistics
from dataclasses import dataclass

from x1_pretrain.spikes.evidence import Cause
from x1_pretrain.spikes.investigation import Investigation
from x1_pretrain.spikes.lab import AS_IT_WAS, Lab, Row, State, Treatment
from x1_pretrain.spikes.replays import LR_DIVISOR
from x1_pretrain.spikes.watch import Incident

# Batches skipped on each side of the offending range: its neighbours may have done harm too.
SKIP_MARGIN = 1
PROBE_EVERY = 10
CLIP_DIVISOR = 10.0
# A remedy is a success if its probe loss is this close to the no-spike control's.
RECOVERED_WITHIN = 0.02

ACTIONS: dict[Cause, str] = {
    "dataset_corruption": "rewind_and_skip",
    "rare_token": "rewind_and_skip",
    "interaction": "rewind_and_skip",
    "undetermined": "rewind_and_skip",
    "adam_second_moment": "update_clip",
    "lr_too_high": "trusted_lr",
    "numeric": "rewind",
    "benign": "no_action",
}
ALWAYS_COMPARED = ("no_action", "skip", "rewind_and_skip", "tighter_clip", "lower_lr")


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
class Recovery:
    """The control and every policy by its name; `action` is what the verdict asks for."""

    action: str
    skipped: tuple[int, int]
    control: Continuation
    policies: dict[str, Continuation]

    def relative(self, name: str) -> float:
        """How far a policy ends above the control, as a share of the control's loss."""
        return self.policies[name].final_probe_nats / self.control.final_probe_nats - 1

    def back_to_control(self, name: str) -> bool:
        return self.relative(name) <= RECOVERED_WITHIN

    @property
    def best(self) -> str:
        finite = [name for name in self.policies if math.isfinite(self.relative(name))]
        return min(finite or self.policies, key=self.relative)


def recover(
    lab: Lab, incident: Incident, found: Investigation, steps: int, grad_clip: float | None
) -> Recovery:
    """Carry out the remedies from the state before the spike to step `steps`.

    `grad_clip` is the profile's.
    """
    before = incident.before
    skipped = (found.offending[0] - SKIP_MARGIN, found.offending[1] + SKIP_MARGIN)
    calm = [row.result.grad_norm for row in incident.rows if row.step <= before.step]
    clip = (grad_clip or statistics.median(calm)) / CLIP_DIVISOR
    treatments = {
        "skip": Treatment(left_out=frozenset(alarm.step for alarm in incident.alarms)),
        "rewind": AS_IT_WAS,
        "rewind_and_skip": AS_IT_WAS,
        "tighter_clip": Treatment(grad_clip=clip),
        "lower_lr": Treatment(lr_factor=1 / LR_DIVISOR),
        "trusted_lr": Treatment(lr_scale=found.trusted_lr_scale),
        "update_clip": Treatment(clip_update=True),
    }
    action = ACTIONS[found.verdict.cause]
    policies = {}
    for name in dict.fromkeys((*ALWAYS_COMPARED, action)):
        if name == "no_action":
            policies[name] = go_on(lab, name, incident.at_confirmation, steps)
        else:
            range_ = skipped if name == "rewind_and_skip" else None
            policies[name] = go_on(lab, name, before, steps, range_, treatments[name])
    control = go_on(lab.without_injection(), "control", before, steps)
    return Recovery(action, skipped, control, policies)


def batch_after_skip(step: int, skipped: tuple[int, int]) -> int:
    """Which batch a step reads once the batches of a range are skipped: later ones move up."""
    first, last = skipped
    return step if step < first else step + (last - first + 1)


def go_on(
    lab: Lab,
    name: str,
    state: State,
    steps: int,
    skipped: tuple[int, int] | None = None,
    treatment: Treatment = AS_IT_WAS,
) -> Continuation:
    """From a state to the end of the run, with the same number of tokens under every policy."""
    lab.trainer.restore(state.snapshot)
    rows, probes = [], [(state.step, state.probe_nats)]
    number_of = None if skipped is None else lambda step: batch_after_skip(step, skipped)
    for row in lab.train(range(state.step + 1, steps + 1), number_of, treatment):
        rows.append(row)
        if row.step % PROBE_EVERY == 0 or row.step == steps:
            probes.append((row.step, lab.probe()))
    return Continuation(name, tuple(rows), tuple(probes))
