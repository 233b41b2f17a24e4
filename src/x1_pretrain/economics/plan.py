"""What a training of any size would take.

python -m x1_pretrain.economics.plan --params 7e9 --tokens 2e12 --gpu h100 --count 1024
"""

import argparse
from dataclasses import replace

from x1_pretrain.economics.cost import checked_price
from x1_pretrain.economics.planner import (
    CARDS_PER_MACHINE,
    CHECKPOINTS_KEPT,
    PUE,
    USABLE,
    Option,
    Plan,
    plan_of,
)
from x1_pretrain.economics.splits import Transformer, activation_bytes
from x1_pretrain.errors import UserError, exit_on_user_error


def plan_lines(plan: Plan, storage_usd: float | None = None, egress_usd: float | None = None) -> list[str]:
    """The plan, line by line; the two prices are dollars per GB (and month)."""
    model, gpu = plan.model, plan.gpu
    peak = gpu.peak_bf16_flops
    lines = [
        f"{'model':<13}{model.params:.3g} parameters, {model.n_layer} layers of width {model.d_model}, "
        f"context {model.seq_len}, vocabulary {model.n_vocab}",
        f"{'tokens':<13}{plan.tokens:.3g} ({plan.tokens / model.params:.1f} a parameter)",
        f"{'compute':<13}{plan.flops:.3g} FLOP, {model.flops_per_token:.3g} a token (6 P + 12 L d T)",
        f"{'card':<13}{plan.count} x {gpu.name}"
        + (f", {peak.value:.4g} FLOP/s ({peak.source}, {peak.date})" if peak else ""),
        f"{'MFU':<13}{plan.mfu:.0%} ({plan.mfu_source})",
        f"{'time':<13}{plan.gpu_hours:,.0f} GPU-hours, {plan.days:.1f} days",
    ]
    for name, spot in (("on demand", False), ("spot", True)):
        found = plan.usd(spot)
        cost = "no dated price known" if found is None else f"{found[0]:,.0f} $ ({found[1]})"
        lines.append(f"{name:<13}{cost}")
    lines.append(
        f"{'energy':<13}{plan.energy_kwh:,.0f} kWh at full power and a PUE of {PUE.value} ({PUE.source})"
    )
    corpus_gb, kept_gb = plan.corpus_bytes / 1e9, CHECKPOINTS_KEPT * plan.checkpoint_bytes / 1e9
    months = plan.days / (365 / 12)
    lines += [
        f"{'storage':<13}{corpus_gb:,.0f} GB of tokens, {kept_gb:,.0f} GB in {CHECKPOINTS_KEPT} checkpoints"
        + _priced((corpus_gb + kept_gb) * months, storage_usd),
        f"{'egress':<13}{plan.checkpoint_bytes / 1e9:,.0f} GB, one checkpoint"
        + _priced(plan.checkpoint_bytes / 1e9, egress_usd),
        *split_lines(plan),
    ]
    return lines


def _priced(units: float, usd: float | None) -> str:
    return ", no price given" if usd is None else f", {units * checked_price(usd):,.0f} $ at {usd:g} $/GB"


def split_lines(plan: Plan) -> list[str]:
    """The best split of each kind, and which of all is the fastest that fits."""
    options = plan.options()
    if not options:
        return [f"splits       none: {plan.count} cards do not divide the batch of {plan.batch_sequences}"]
    kinds = {
        "data": lambda s: s.tensor == s.pipeline == 1 and s.zero == 0,
        "ZeRO-1": lambda s: s.tensor == s.pipeline == 1 and s.zero == 1,
        "ZeRO-2": lambda s: s.tensor == s.pipeline == 1 and s.zero == 2,
        "ZeRO-3": lambda s: s.tensor == s.pipeline == 1 and s.zero == 3,
        "tensor": lambda s: s.tensor > 1 and s.pipeline == 1,
        "pipeline": lambda s: s.tensor == 1 and s.pipeline > 1,
        "all three": lambda s: s.tensor > 1 and s.pipeline > 1,
    }
    usable = plan.usable_bytes / 1e9
    lines = [
        f"{'splits':<13}GB a card (weights + gradients + optimizer + activations), {usable:.0f} usable: "
        f"{USABLE:.0%}; batch {plan.batch_sequences} x {plan.model.seq_len}, {CARDS_PER_MACHINE} a machine"
    ]
    for name, of_kind in kinds.items():
        best = next((option for option in options if of_kind(option.split)), None)
        if best is not None:
            lines.append(f"  {name:<11}{_option_text(best, plan.model)}")
    best = options[0]
    verdict = f"{best.split.name}" if best.fits else "none fits: more cards, larger ones, or a smaller model"
    return [*lines, f"{'cheapest':<13}{verdict}"]


def _option_text(option: Option, model: Transformer) -> str:
    split, memory = option.split, option.memory
    parts = (memory.weights, memory.gradients, memory.optimizer, memory.activations)
    split_sizes = " + ".join(f"{part / 1e9:.1f}" for part in parts)
    both = [activation_bytes(model, replace(split, recompute=again)) / 1e9 for again in (False, True)]
    kind = "recomputed" if split.recompute else "kept"
    return (
        f"{split.name}, micro-batch {split.micro_batch}, activations {kind}: {memory.total / 1e9:.1f} = "
        f"{split_sizes}, {'fits' if option.fits else 'does not fit'}; activations {both[0]:.1f} kept or "
        f"{both[1]:.1f} recomputed; sends {option.sent_bytes / 1e9:.1f} GB a step, "
        f"bubble {option.bubble:.1%}, step about {option.step_s:.1f} s"
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UserError(f"{text!r} is not a number such as 7e9") from error


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m x1_pretrain.economics.plan", description=__doc__)
    parser.add_argument("--params", required=True, help="all parameters, such as 7e9")
    parser.add_argument("--tokens", required=True, help="such as 2e12")
    parser.add_argument("--gpu", required=True, help="a card of the hardware table, such as h100")
    parser.add_argument("--count", type=int, default=1, help="cards")
    parser.add_argument("--mfu", type=float, help="0 to 1; default: a published run's on such a card")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--batch-tokens", default="4e6", help="tokens a step")
    parser.add_argument("--storage-usd-per-gb-month", type=float)
    parser.add_argument("--egress-usd-per-gb", type=float)
    arguments = parser.parse_args(argv)
    plan = plan_of(
        _number(arguments.params),
        _number(arguments.tokens),
        arguments.gpu,
        arguments.count,
        arguments.mfu,
        arguments.vocab,
        arguments.seq_len,
        _number(arguments.batch_tokens),
    )
    prices = arguments.storage_usd_per_gb_month, arguments.egress_usd_per_gb
    print("\n".join(plan_lines(plan, *prices)))


if __name__ == "__main__":
    main()
