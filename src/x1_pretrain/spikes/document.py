"""The text of spike-postmortem.md: what happened, how we know, what was done, what it cost."""

from typing import Any

from x1_pretrain.spikes.advice import CAUSES, PREVENTION
from x1_pretrain.spikes.evidence_text import (
    cross_evaluation,
    gradient_norm_log,
    offending_text,
    token_histogram,
)
from x1_pretrain.spikes.markdown import number, table

REASONS = {
    "loss": "the loss stood out above its window",
    "loss_low": "the loss stood out below its window",
    "grad_norm": "the gradient norm stood out above its window",
    "nonfinite": "a number was not finite",
}
CONFIRMATIONS = {
    "nonfinite": "a number that is not finite needs no confirmation",
    "probe": "the loss on held-out text had risen",
    "alarms": "several steps had been flagged",
}


def document(spike: dict[str, Any], measured: str, figure: str) -> str:
    """The document. `measured` and `figure` are the paths of those files, relative to it."""
    sections = {
        "Summary": _summary(spike) + f"\n\n![The spike, its recovery and its tokens]({figure})",
        "Detection": _detection(spike, measured),
        "Evidence: gradient-norm log": gradient_norm_log(spike),
        "Evidence: batch-token histogram": token_histogram(spike),
        "Evidence: the offending text": offending_text(spike),
        "Evidence: the batches on weights that never saw them": cross_evaluation(spike),
        "Replays": _replays(spike),
        "Classification": _classification(spike),
        "Recovery and result": _recovery(spike),
        "What would have prevented it": _prevention(spike),
    }
    body = "\n\n".join(f"## {heading}\n\n{text}" for heading, text in sections.items())
    return f"# Post-mortem of the loss spike at step {spike['detection']['step']}\n\n{body}\n"


def cause_name(spike: dict[str, Any]) -> str:
    """`dataset corruption (broken order)`"""
    verdict = spike["verdict"]
    name = verdict["cause"].replace("_", " ")
    subtype = verdict["subtype"]
    return name if subtype is None else f"{name} ({subtype.replace('_', ' ')})"


def _range(batches: list[int]) -> str:
    first, last = batches
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def _summary(spike: dict[str, Any]) -> str:
    injection, recovery, run = spike["injection"], spike["recovery"], spike["run"]
    injected = _range([injection["first_batch"], injection["last_batch"]])
    result = (
        f"after rewinding to step {recovery['rewound_to_step']} and skipping "
        f"{_range(recovery['skipped_batches'])}, the probe loss at step "
        f"{recovery['final_step']} is {number(recovery['final_probe_nats'])} nats, against "
        f"{number(recovery['control_probe_nats'])} for the run that was never spoiled"
    )
    return (
        f"**This spike was injected on purpose** (`{injection['kind']}`, {injected}) into a run of "
        f"model {run['model']} (N = {run['N']:,}, seed {run['seed']}), because a small healthy run "
        f"rarely spikes. The monitor and the diagnosis were not told.\n\n"
        f"- Detected at step {spike['detection']['step']}, "
        f"{spike['detection']['tokens']:,} tokens into the run.\n"
        f"- Cause, by replay: **{cause_name(spike)}**, {_agreement(spike)}.\n"
        f"- Offending: {_range(spike['offending_batches'])} "
        f"({'exactly' if spike['truth']['range_right'] else 'not exactly'} what was injected).\n"
        f"- Recovery: {result}."
    )


def _agreement(spike: dict[str, Any]) -> str:
    verdict = spike["verdict"]
    if not verdict["arms"]:
        return "which no test could support or exclude"
    return f"{verdict['agreeing_arms']} of {verdict['arms']} tests came out as it predicts"


def _detection(spike: dict[str, Any], measured: str) -> str:
    detection = spike["detection"]
    time = detection["detected_utc"]
    when = (
        f"The UTC time is in [{measured}]({measured}); it is kept out of this document so that the "
        "document can be reproduced byte for byte."
        if time is None
        else f"It was {time} (UTC)."
    )
    rows = [
        [
            str(alarm["step"]),
            alarm["reason"].replace("_", " "),
            number(alarm["value"]),
            "" if alarm["median"] is None else number(alarm["median"]),
            "" if alarm["z"] is None else number(alarm["z"], 1),
        ]
        for alarm in detection["alarms"]
    ]
    header = ["step", "alarm", "value", "median of window", "robust sd above it"]
    dismissed = len(detection["dismissed_alarms"])
    return (
        f"At step {detection['step']}, after {detection['tokens']:,} tokens, "
        f"{REASONS[detection['reason']]}. {when}\n\n"
        f"{table(header, rows, (0, 2, 3, 4))}\n\nAn alarm is not an incident. This one was confirmed at step "
        f"{detection['confirmed_step']}, as {CONFIRMATIONS[detection['confirmed_by']]}: the probe "
        f"loss went from {number(detection['probe_before_nats'])} to "
        f"{number(detection['probe_at_confirmation_nats'])} nats. Alarms earlier in the run that "
        f"were not confirmed, and only logged: {dismissed}."
    )


def _replays(spike: dict[str, Any]) -> str:
    rows = [
        [
            f"{arm['name'].replace('_', ' ')}: {arm['question']}",
            str(arm["state_step"]),
            f"{arm['first_batch']} to {arm['last_batch']}",
            number(arm["peak_loss_nats"]),
            "yes" if arm["spikes"] else "no",
            number(arm["damage_nats"]),
            number(arm["update_rms"], 2),
        ]
        for arm in spike["arms"]
    ]
    header = [
        "arm",
        "from step",
        "batches",
        "peak loss",
        "spikes",
        "damage (probe, nats)",
        "update RMS",
    ]
    equal = (
        "was repeated bit for bit, losses and gradient norms"
        if spike["reproduced_bit_for_bit"]
        else "was **not** repeated bit for bit: hardware, nondeterminism or the loader"
    )
    return (
        f"Each arm restarts from a saved state and changes one thing; its damage is how far "
        f'the held-out probe loss rises above its start. The original {equal}. "Other batches" lie '
        f"far ahead in the same stream.\n\n"
        f"{table(header, rows, (1, 3, 5, 6))}"
    )


def _classification(spike: dict[str, Any]) -> str:
    verdict = spike["verdict"]
    right = "This is what was injected." if spike["truth"]["cause_right"] else (
        "**This is not what was injected**: the diagnosis was wrong or could not decide."
    )  # fmt: skip
    return (
        f"**{cause_name(spike).capitalize()}.** {CAUSES[verdict['cause']]} The rule that decided: "
        f"{verdict['rule']}. Confidence: {_agreement(spike)}. {right}"
    )


def _recovery(spike: dict[str, Any]) -> str:
    recovery = spike["recovery"]
    arms = {arm["name"]: arm for arm in spike["arms"]}
    outcome = "recovered" if recovery["recovered"] else "**not recovered**"
    relative = recovery["relative_to_control"]
    rows = [
        ["no spike (control)", number(recovery["control_probe_nats"])],
        ["rewind and skip (done)", number(recovery["final_probe_nats"])],
        ["no action", number(recovery["no_action_probe_nats"])],
    ]
    apart = "not comparable" if relative is None else f"{relative:+.2%} from the control"
    return (
        f"Carried out: rewind to step {recovery['rewound_to_step']}, skip "
        f"{_range(recovery['skipped_batches'])} (the offending range and one batch on each side), "
        f"go on to step {recovery['final_step']}, {recovery['tokens']:,} tokens, as many as the "
        f"control read.\n\n{table(['policy', 'probe loss at the end (nats)'], rows, (1,))}\n\n"
        f"Result: {outcome}, {apart}.\n\n"
        f"The other remedies, by their replays: a quarter of the learning rate changes the damage from "
        f"{number(arms['same']['damage_nats'])} to {number(arms['lower_lr']['damage_nats'])} nats, but all "
        f"that follows is trained at that rate; limiting each update's RMS to 1 changes it to "
        f"{number(arms['update_clip']['damage_nats'])}. A muP rescale is prevention, for a learning rate "
        f"that was carried to another width; it repairs no run that has already spiked."
    )


def _prevention(spike: dict[str, Any]) -> str:
    verdict = spike["verdict"]
    return PREVENTION.get(verdict["subtype"] or "", PREVENTION.get(verdict["cause"], ""))
