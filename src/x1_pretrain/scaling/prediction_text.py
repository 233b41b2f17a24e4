"""prediction.md, written from the numbers of fit.json and prediction.json: no sentence without one."""

import math
from typing import Any

from x1_pretrain.scaling.runs import plural


def count(value: float) -> str:
    """A count with three digits and its unit: 22.6B, 442k."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
    return f"{value:.3g}"


def between(ends: list[float], show: Any = count) -> str:
    return f"{show(ends[0])} to {show(ends[1])}"


def ratio(value: float) -> str:
    """Tokens per parameter with the digits that mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.1f}"


def prediction_markdown(fit: dict[str, Any], prediction: dict[str, Any]) -> str:
    """The document, ending with a newline."""
    target = prediction["target"]
    size = count(target["N"])
    parts = [
        f"# Prediction: tokens for {size} parameters",
        _summary(target, size),
        _target_table(target, size),
        "![loss against size and tokens, with the fitted law](iso-flop.png)",
        "## The held-out run",
        _planned_paragraph(prediction),
        _planned_table(prediction),
        "## Against the published Chinchilla number",
        _published_paragraph(prediction, size),
        _published_table(prediction),
        "## How far this extrapolates",
        _extrapolation_paragraph(fit, prediction, size),
        _text_paragraph(prediction),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(target: dict[str, Any], size: str) -> str:
    D, R = target["D_opt"], target["D_per_N"]
    return (
        f"The fitted law gives **D_opt({size}) = {count(D['median'])} tokens, 95% interval "
        f"{between(D['ci95'])}**, which implies **D/N = {ratio(R['median'])}, 95% interval "
        f"{between(R['ci95'], ratio)}**. Points are posterior medians; the intervals come from the same "
        "posterior and include what the runs leave open."
    )


def _target_table(target: dict[str, Any], size: str) -> str:
    D, R = target["D_opt"], target["D_per_N"]
    return "\n".join(
        [
            f"| for {size} parameters | median | 95% interval | 95% interval of the prior alone |",
            "|---|---|---|---|",
            f"| D_opt, tokens | {count(D['median'])} | {between(D['ci95'])} | {between(D['prior_ci95'])} |",
            f"| D/N, tokens per parameter | {ratio(R['median'])} | {between(R['ci95'], ratio)} "
            f"| {between(R['prior_ci95'], ratio)} |",
        ]
    )


def _planned_paragraph(prediction: dict[str, Any]) -> str:
    held_out = [run["model"] for run in prediction["planned"] if run["held_out"]]
    if not held_out:
        return "Every model of this profile is in the sweep, so no run is held out and nothing can be scored."
    names = " and ".join(held_out)
    return (
        f"The fit never sees {names}. Before that loss is looked at, the law and the noise around it "
        "(posterior predictive) put it in the interval below; when it is the selected model, `score.json` "
        "says afterwards whether it fell inside. The other rows are runs the fit does see, for comparison."
    )


def _planned_table(prediction: dict[str, Any]) -> str:
    rows = [
        "| model | N | D | held out | predicted loss, nats/token | 95% interval |",
        "|---|---|---|---|---|---|",
    ]
    for run in prediction["planned"]:
        loss = run["loss_nats"]
        rows.append(
            f"| {run['model']} | {count(run['N'])} | {count(run['D'])} "
            f"| {'yes' if run['held_out'] else 'no'} | {loss['median']:.3f} "
            f"| {loss['ci95'][0]:.3f} to {loss['ci95'][1]:.3f} |"
        )
    return "\n".join(rows)


def _published_paragraph(prediction: dict[str, Any], size: str) -> str:
    low, high = prediction["target"]["D_per_N"]["ci95"]
    median = prediction["target"]["D_per_N"]["median"]
    ratios = [fit["D_per_N"] for fit in prediction["published"]]
    inside = sum(low <= r <= high for r in ratios)
    table = prediction["chinchilla_table"]
    tokens = ", ".join(count(D) for D in table["D_opt"])
    verdict = "contains" if low <= 20 <= high else "does not contain"
    return (
        f"Chinchilla's rule of thumb is 20 tokens per parameter: D = 20 N. Its own table for 1B gives "
        f"{tokens} tokens by its three approaches ({table['source']}). Our median, {ratio(median)}, is "
        f"{median / 20:.2g} times that, and our interval {verdict} 20. Of the {len(ratios)} published "
        f"fits below, {inside} {'lies' if inside == 1 else 'lie'} inside our interval; among themselves "
        f"they differ by a factor {factor(max(ratios) / min(ratios))} at {size}. " + _meaning(low, high)
    )


def _meaning(low: float, high: float) -> str:
    width = high / low
    if width > 10:
        return (
            f"The interval's ends are a factor {factor(width)} apart, so that it contains 20 or not is weak "
            "evidence for or against the published number."
        )
    return f"The interval's ends are a factor {factor(width)} apart, so the comparison has some force."


def factor(value: float) -> str:
    """Two digits, written out: 2.2, 71, 110."""
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def _published_table(prediction: dict[str, Any]) -> str:
    rows = ["| published fit | D_opt | D/N | source |", "|---|---|---|---|"]
    rows += [
        f"| {fit['name']} | {count(fit['D_opt'])} | {ratio(fit['D_per_N'])} | {fit['source']} |"
        for fit in prediction["published"]
    ]
    return "\n".join(rows)


def _extrapolation_paragraph(fit: dict[str, Any], prediction: dict[str, Any], size: str) -> str:
    target, runs, best = prediction["target"], fit["runs"], fit["n_opt"]
    share = target["prior_share"]
    low, high = target["D_opt"]["ci95"]
    parameters = fit["posterior"]["parameters"]
    shared = parameters["rho"]
    verdict = (
        "The runs identify the law by the tests of `fit.json`."
        if fit["identified"]
        else "**The runs do not identify the law**: " + " ".join(fit["identified_why"])
    )
    return (
        f"The {runs['n']} runs have {between(runs['N'])} parameters and {between(runs['D'])} tokens on "
        f"{plural(len(runs['budgets']), 'FLOPs budget')}. {_distance(target, size)} {verdict} "
        f"{_near_the_data(best, vertex_of(fit))} For D_opt({size}) the ends of "
        f"the interval are a factor {factor(high / low)} apart, and on a logarithmic scale the spread is "
        f"{share:.2f} of the spread of the prior alone (1 would mean that the runs say nothing): "
        f"alpha keeps {parameters['alpha']['contraction']:.2f} and beta "
        f"{parameters['beta']['contraction']:.2f} of theirs. The interval assumes that the form "
        "E + A/N^alpha + B/D^beta holds all the way, that the recipe stays as good at every size, and "
        f"that the errors of different sizes are independent; runs of one size share {shared['median']:.2f} "
        f"(95% interval {between(shared['ci95'], '{:.2f}'.format)}) of the variance of theirs. Nothing of "
        f"this was tested at {size}, so the true uncertainty is larger than the interval."
    )


def vertex_of(fit: dict[str, Any]) -> float | None:
    """N at the lowest point of the parabola through the largest budget's runs, if it has one."""
    optimum = fit["isoflop"][-1]["optimum"] if fit["isoflop"] else None
    return None if optimum is None else optimum["N"]


def _near_the_data(best: dict[str, Any], vertex: float | None) -> str:
    size = f"{count(best['median'])} (95% interval {between(best['ci95'])})"
    if best["kind"] == "interpolation":
        text = f"Close to the data, the law's best size for {best['C']:.3g} FLOPs is {size}"
        if vertex is None:
            return f"{text}; the parabola through those runs has no minimum among them."
        low, high = best["ci95"]
        agree = (
            "inside that interval" if low <= vertex <= high else "outside that interval: trust neither much"
        )
        return f"{text}; the parabola through those runs alone has its minimum at {count(vertex)}, {agree}."
    return (
        f"Even the best size for {best['C']:.3g} FLOPs, {size}, lies outside the sizes tried, so nothing "
        "here is an interpolation."
    )


def _distance(target: dict[str, Any], size: str) -> str:
    if target["kind"] == "interpolation":
        return f"{size} parameters lie among them."
    if target["decades_in_N"] < 0:
        return f"{size} parameters are fewer than the smallest of them has."
    return (
        f"{size} parameters lie {_decades(target['decades_in_N'])} in N, and the compute "
        f"{_decades(target['decades_in_C'])} in C, beyond the largest of them."
    )


def _decades(value: float) -> str:
    factor = 10 ** abs(value)
    rounded = float(f"{factor:.2g}")
    shown = f"{rounded:,.0f}" if 100 <= rounded < 1e6 else f"{rounded:.2g}"
    return f"{value:.1f} decades (a factor {shown if value >= 0 else '1/' + shown})"


def _text_paragraph(prediction: dict[str, Any]) -> str:
    text = prediction["text"]
    domains = ", ".join(text["domains"])
    return (
        f"The corpus ({domains}) and the tokenizer (`{text['tokenizer']}`) are not Chinchilla's "
        "(MassiveText, 32k SentencePiece). Losses in nats per token, and with them E, A and B, compare only "
        "under one tokenizer; a token of ours stands for another amount of text than one of theirs, so D/N "
        "is not the same quantity either. Bits per byte, which do compare, stand in `runs.csv`."
    )
