"""A plan as a person reads it."""

from typing import Any

from x1_pretrain.scaling.prediction_text import count

LITTLE = 0.95  # an interval that keeps more of its width than this has not learnt much


def plan_text(content: dict[str, Any]) -> str:
    """Lines of text, without a newline at the end."""
    one = content["laws"] == 1
    best = content["compute_optimal"]
    money = "" if content["usd"] is None else f" ({content['usd']:.4g} dollars)"
    lines = [
        f"For {content['flops']:.3g} FLOPs of training{money}:",
        f"  N = {_count(best['N'], one)} parameters",
        f"  D = {_count(best['D'], one)} tokens, D/N = {_number(best['D_per_N'], one)}",
        f"  loss = {_number(best['loss_nats'], one, 4)} nats per token",
        "Another size for the same FLOPs costs:",
    ]
    for row in content["off_optimum"]:
        wasted = {k: _percent(v) for k, v in row["compute_wasted"].items()}
        lines.append(
            f"  N = {count(row['N'])}: loss +{_number(row['loss_added_nats'], one, 3)}, compute wasted "
            f"{_number(wasted, one, 3)}%"
        )
    if "served" in content:
        lines += _served(content["served"], one)
    if "next_run" in content:
        lines += _next(content["next_run"])
    return "\n".join(lines)


def _served(served: dict[str, Any], one: bool) -> list[str]:
    size = {k: _percent(v) for k, v in served["N_over_compute_optimal"].items()}
    cost = {k: _percent(v) for k, v in served["cost_over_compute_optimal"].items()}
    lines = [
        f"To serve {count(served['tokens'])} tokens at the loss {_number(served['loss_nats'], one, 4)}, "
        f"least {served['in']} over its life:",
        f"  N = {_count(served['N'], one)} parameters, {_number(size, one, 3)}% of the compute-optimal size",
        f"  D = {_count(served['D'], one)} tokens, D/N = {_number(served['D_per_N'], one)}",
        f"  cost {_number(cost, one, 4)}% of training and serving the compute-optimal model",
    ]
    if served["reachable"] < 1:
        lines.append(f"  By {1 - served['reachable']:.0%} of the posterior no model reaches this loss.")
    return lines


def _next(advice: dict[str, Any]) -> list[str]:
    if "refused" in advice:
        return [f"No advice on the next run: {advice['refused']}"]
    lines = [f"To know D_opt({count(advice['target_N'])}) better, train next:"]
    for name, words in (("most_telling", "tells most"), ("most_per_flop", "half as telling, for less")):
        run = advice[name]
        lines.append(
            f"  {words}: N = {count(run['N'])}, D = {count(run['D'])}, {run['flops']:.2g} FLOPs; "
            f"the interval (in ln D) shrinks to {run['shrink']:.0%}"
        )
    if advice["most_telling"]["shrink"] > LITTLE:
        lines.append("  No run of this budget would tell much.")
    return lines


def _percent(value: Any) -> Any:
    return [100 * v for v in value] if isinstance(value, list) else 100 * value


def _count(found: dict[str, Any], one: bool) -> str:
    if one:
        return count(found["median"])
    return f"{count(found['median'])} (95% {count(found['ci95'][0])} to {count(found['ci95'][1])})"


def _number(found: dict[str, Any], one: bool, digits: int = 3) -> str:
    median = f"{found['median']:.{digits}g}"
    if one:
        return median
    low, high = found["ci95"]
    return f"{median} (95% {low:.{digits}g} to {high:.{digits}g})"
