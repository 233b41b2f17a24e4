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
    "update_rms": "an update was larger than a second moment in good order can make it",
}
POLICIES = {
    "no_action": "no action",
    "skip": "leave out the updates of the flagged steps, without rewinding the data",
    "rewind": "rewind, same batches",
    "rewind_and_skip": "rewind, skip the offending batches",
    "tighter_clip": "rewind, clip gradients at a tenth of the norm",
    "lower_lr": "rewind, a quarter of the lr from there on",
    "trusted_lr": "rewind, the lr of before from there on",
    "update_clip": "rewind, each update limited to RMS 1",
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


def _injected(injection: dict[str, Any]) -> str:
    """`batches 260 to 263`, or `from step 260`"""
    if injection["on"] == "batch":
        return _range([injection["first"], injection["last"]])
    return f"from step {injection['first']}"


def _summary(spike: dict[str, Any]) -> str:
    injection, recovery, run = spike["injection"], spike["recovery"], spike["run"]
    done = _done(recovery)
    result = (
        f"{done}; at step {recovery['final_step']} the probe loss is "
        f"{number(recovery['final_probe_nats'])} nats, against {number(recovery['control_probe_nats'])} for "
        "the run that was never spoiled"
    )
    right = spike["truth"]["range_right"]
    stands_out = "no batch stands out; the steps in question are"
    offending = f"{_range(spike['offending_batches'])}"
    if not spike["offending_stand_out"]:
        offending = f"{stands_out} {spike['offending_batches'][0]} to {spike['offending_batches'][1]}"
    if right is not None:
        offending += f" ({'exactly' if right else 'not exactly'} what was injected)"
    return (
        f"**This spike was injected on purpose** (`{injection['kind']}`, {_injected(injection)}) into a run "
        f"of model {run['model']} (N = {run['N']:,}, seed {run['seed']}), because a small healthy run "
        f"rarely spikes. The monitor and the diagnosis were not told.\n\n"
        f"- Detected at step {spike['detection']['step']}, "
        f"{spike['detection']['tokens']:,} tokens into the run.\n"
        f"- Cause, by replay: **{cause_name(spike)}**, {_agreement(spike)}.\n"
        f"- Offending: {offending}.\n"
        f"- Recovery: {result}."
    )


def _done(recovery: dict[str, Any]) -> str:
    """What was carried out, in words."""
    if recovery["action"] == "no_action":
        return "nothing was done, as no harm was"
    words = f"rewound to step {recovery['rewound_to_step']}"
    if recovery["skipped_batches"] is not None:
        return f"{words}, {_range(recovery['skipped_batches'])} skipped"
    return f"{words}, {POLICIES[recovery['action']].removeprefix('rewind, ')}"


def _agreement(spike: dict[str, Any]) -> str:
    verdict = spike["verdict"]
    if not verdict["arms"]:
        return "which no test could support or exclude"
    words = f"{verdict['agreeing_arms']} of {verdict['arms']} tests came out as it predicts"
    if verdict["confidence"] is None:
        return words
    return f"{words}, confidence {verdict['confidence']:.0%}"


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
    repeated = spike["reproduction"]
    if repeated["bit_for_bit"]:
        equal = "was repeated bit for bit, losses and gradient norms"
    elif repeated["reproduced"]:
        equal = (
            f"was repeated within {number(repeated['tolerance_nats'], 6)} nats, which is what two replays of "
            "one thing differ by here, times ten"
        )
    else:
        equal = "was **not** repeated: hardware, nondeterminism or the loader"
    return (
        f"Each arm restarts from a saved state and changes one thing; its damage is how far "
        f'the held-out probe loss rises above its start. The original {equal}. "Other batches" lie '
        f"far ahead in the same stream; the other state goes on by its own schedule.\n\n"
        f"{table(header, rows, (1, 3, 5, 6))}"
    )


def _classification(spike: dict[str, Any]) -> str:
    verdict = spike["verdict"]
    truth = spike["truth"]
    injected = truth["cause"].replace("_", " ")
    if truth["subtype"] is not None:
        injected += f" ({truth['subtype'].replace('_', ' ')})"
    if truth["subtype_right"]:
        right = "This is what was injected."
    elif truth["cause_right"]:
        right = f"The cause is what was injected, **its kind is not**: it was {injected}."
    else:
        right = (
            f"**This is not what was injected** ({injected}): the diagnosis was wrong or could not decide."
        )
    counted = (
        ""
        if verdict["confidence"] is None
        else ": the share of right verdicts among those with as many tests against them, counted on "
        "injections of known cause"
    )
    return (
        f"**{cause_name(spike).capitalize()}.** {CAUSES[verdict['cause']]} The rule that decided: "
        f"{verdict['rule']}. {_agreement(spike).capitalize()}{counted}. {right}"
    )


def _recovery(spike: dict[str, Any]) -> str:
    recovery = spike["recovery"]
    rows = [["no spike (control)", number(recovery["control_probe_nats"]), ""]]
    for policy in recovery["policies"]:
        name = POLICIES[policy["name"]]
        done = " (done)" if policy["name"] == recovery["action"] else ""
        relative = policy["relative_to_control"]
        apart = "not comparable" if relative is None else f"{relative:+.2%}"
        rows.append([name + done, number(policy["final_probe_nats"]), apart])
    relative = recovery["relative_to_control"]
    apart = "not comparable" if relative is None else f"{relative:+.2%} from the control"
    if not recovery["recovered"]:
        outcome = "**not recovered**"
    elif recovery["needed"]:
        outcome = "recovered, and without action the run had not"
    else:
        outcome = "recovered, but so had the run without any action: it only lost time"
    header = ["policy", "probe loss at the end (nats)", "from the control"]
    return (
        f"Carried out: {_done(recovery)}, on to step {recovery['final_step']}, {recovery['tokens']:,} "
        f"tokens, as many as the control read. The other remedies went the same way, for comparison:\n\n"
        f"{table(header, rows, (1, 2))}\n\n"
        f"Result: {outcome}; {apart}. The best of them: {POLICIES[recovery['best']]}.\n\n"
        f"A muP rescale is prevention, for a learning rate that was carried to another width; it repairs no "
        f"run that has already spiked."
    )


def _prevention(spike: dict[str, Any]) -> str:
    verdict = spike["verdict"]
    return PREVENTION.get(verdict["subtype"] or "", PREVENTION.get(verdict["cause"], ""))
