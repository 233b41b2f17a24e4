"""`python -m x1_pretrain.scaling.plan --runs runs.csv --flops 1e18`: what the law advises to train.

The best size and tokens for a budget in FLOPs or dollars, the price of another size, the best model to serve,
and the run that would teach most. Every number has the 95% interval of the posterior; a published law, with
--law, has none.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain import paths
from x1_pretrain.economics.cost import checked_price, positive
from x1_pretrain.economics.hardware import find_gpu
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.scaling import planner
from x1_pretrain.scaling.identify import PARAMETERS
from x1_pretrain.scaling.intervals import interval
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.next_run import best_per_flop, candidates
from x1_pretrain.scaling.plan_text import plan_text
from x1_pretrain.scaling.posterior import Posterior, Sampling, sample_posterior
from x1_pretrain.scaling.prior import load_prior
from x1_pretrain.scaling.published import BESIROGLU, HOFFMANN, MUENNIGHOFF
from x1_pretrain.scaling.runs import Runs, read_runs

LAWS = {"hoffmann": HOFFMANN.law, "besiroglu": BESIROGLU.law, "muennighoff": MUENNIGHOFF.law}
DRAWS = 300  # laws of the posterior that each plan is made for
SAMPLING = Sampling(walkers=100, steps=6000)
OFF_OPTIMUM = (0.25, 0.5, 2.0, 4.0)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m x1_pretrain.scaling.plan", description=__doc__)
    law = parser.add_mutually_exclusive_group()
    law.add_argument("--runs", type=Path, default=paths.RUNS_CSV, help="runs to infer the law from")
    law.add_argument("--law", choices=LAWS, help="a published law instead")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--flops", type=float, help="budget of training, FLOPs")
    budget.add_argument("--usd", type=float, help="budget of training, dollars; needs --gpu and --price")
    parser.add_argument("--gpu", help="what it is trained on, such as A100")
    parser.add_argument("--price", type=float, help="of it, dollars per hour")
    parser.add_argument("--mfu", type=float, default=0.4, help="share of its peak in training")
    parser.add_argument("--size", type=float, help="also the cost of training this many parameters instead")
    parser.add_argument(
        "--loss", type=float, help="loss of the served model; default: the best for the budget"
    )
    parser.add_argument("--prompt-tokens", type=float, default=0.0, help="served over the model's life")
    parser.add_argument("--generated-tokens", type=float, default=0.0, help="served over the model's life")
    parser.add_argument("--serve-gpu", help="what it is served on; with --serve-price the plan is in dollars")
    parser.add_argument("--serve-price", type=float, help="of it, dollars per hour")
    parser.add_argument("--prefill-mfu", type=float, default=0.4, help="share of its peak for prompts")
    parser.add_argument("--decode-mfu", type=float, default=0.2, help="share of its peak for generation")
    parser.add_argument("--serve-speedup", type=float, default=1.0, help="peak over bf16's: 2 for int8, fp8")
    parser.add_argument("--target-params", type=float, default=1e9, help="size whose D_opt is to be known")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of text")
    return parser


@exit_on_user_error
def main() -> None:
    options = parser().parse_args(sys.argv[1:])
    for name in ("flops", "usd", "size", "loss", "target_params", "serve_speedup"):
        if getattr(options, name) is not None:
            positive(getattr(options, name), "--" + name.replace("_", "-"))
    for name in ("prompt_tokens", "generated_tokens"):
        if not 0 <= getattr(options, name) < float("inf"):
            raise UserError(f"--{name.replace('_', '-')}: {getattr(options, name)} must be 0 or more tokens")
    C, usd = budget(options)
    prices = serving_prices(options)
    runs = posterior = None
    if options.law:
        laws = [LAWS[options.law]]
    else:
        runs = read_runs(options.runs)
        posterior = sample_posterior(runs, load_prior(), SAMPLING)
        laws = drawn(posterior)
    content = plan(options, laws, C, usd, prices)
    if runs is not None and posterior is not None:
        content["next_run"] = next_run(runs, posterior, options.target_params, C)
    print(json.dumps(content) if options.json else plan_text(content))


def _usd_per_flop(gpu: str | None, price: float | None, mfu: float, option: str, speedup: float = 1) -> float:
    if gpu is None or price is None:
        raise UserError(f"--{option}gpu, --{option}price: both are needed for a plan in dollars")
    if not 0 < mfu <= 1:
        raise UserError(f"mfu: {mfu} must be above 0 and at most 1")
    found = find_gpu(gpu)
    if found.gpu is None or found.gpu.peak_bf16_flops is None:
        raise UserError(f"--{option}gpu: {found.reason or gpu + ' has no known peak'}")
    if not checked_price(price, f"--{option}price") > 0:
        raise UserError(f"--{option}price: 0 dollars per hour buy any amount; plan with --flops")
    return planner.usd_per_flop(price, speedup * found.gpu.peak_bf16_flops.value, mfu)


def budget(options: argparse.Namespace) -> tuple[float, float | None]:
    """FLOPs of training, and dollars where the prices are given."""
    if options.flops is not None and options.price is None:
        return options.flops, None
    each = _usd_per_flop(options.gpu, options.price, options.mfu, "")
    return (options.flops or options.usd / each), (options.usd or options.flops * each)


def serving_prices(options: argparse.Namespace) -> planner.Prices | None:
    """Dollars of a FLOP in training and serving, or None: then FLOPs are compared."""
    if options.serve_price is None and options.serve_gpu is None:
        return None
    where = (options.serve_gpu, options.serve_price)
    return planner.Prices(
        training=_usd_per_flop(options.gpu, options.price, options.mfu, ""),
        prompt=_usd_per_flop(*where, options.prefill_mfu, "serve-", options.serve_speedup),
        generated=_usd_per_flop(*where, options.decode_mfu, "serve-", options.serve_speedup),
    )


def drawn(posterior: Posterior) -> list[Law]:
    """DRAWS laws of the posterior, evenly spaced."""
    columns = [getattr(posterior.law, name).ravel() for name in PARAMETERS]
    chosen = np.linspace(0, columns[0].size - 1, DRAWS).astype(int)
    return [Law(*(float(column[i]) for column in columns)) for i in chosen]


def plan(
    options: argparse.Namespace, laws: list[Law], C: float, usd: float | None, prices: planner.Prices | None
) -> dict[str, Any]:
    """Everything but the next run: medians and 95% intervals over `laws`."""
    best = [planner.compute_optimal(law, C) for law in laws]
    content: dict[str, Any] = {"flops": C, "usd": usd, "laws": len(laws), "compute_optimal": summary(best)}
    middle = content["compute_optimal"]["N"]["median"]
    sizes = [factor * middle for factor in OFF_OPTIMUM] + ([options.size] if options.size else [])
    content["off_optimum"] = []
    for N in sorted(sizes):
        others = [planner.of_size(law, N, C) for law in laws]
        lost = [other.loss_nats - own.loss_nats for other, own in zip(others, best, strict=True)]
        wasted = [planner.excess(law, other) for law, other in zip(laws, others, strict=True)]
        row = {
            "N": N,
            "loss_added_nats": interval(np.array(lost)),
            "compute_wasted": interval(np.array(wasted)),
        }
        content["off_optimum"].append(row)
    if options.prompt_tokens + options.generated_tokens > 0:
        content["served"] = served(options, laws, [own.loss_nats for own in best], prices)
    return content


def served(
    options: argparse.Namespace, laws: list[Law], losses: list[float], prices: planner.Prices | None
) -> dict[str, Any]:
    """The model of one loss that is cheapest to train and serve, and what it saves."""
    asked = (options.prompt_tokens, options.generated_tokens)
    tokens = prices.effective_tokens(*asked) if prices else sum(asked)
    wanted = [options.loss or loss for loss in losses]
    able = [(law, loss) for law, loss in zip(laws, wanted, strict=True) if loss > law.E]
    if not able:
        planner.to_reach(laws[0], wanted[0])  # says why not
    plans = [planner.to_reach(law, loss, tokens) for law, loss in able]
    plain = [planner.to_reach(law, loss) for law, loss in able]
    pairs = zip(plans, plain, strict=True)
    ratio = [planner.lifetime_flops(a, tokens) / planner.lifetime_flops(b, tokens) for a, b in pairs]
    return {
        "in": "dollars" if prices else "FLOPs",
        "tokens": sum(asked),
        "effective_tokens": tokens,
        "reachable": len(able) / len(laws),
        **summary(plans),
        "N_over_compute_optimal": interval(np.array([a.N / b.N for a, b in zip(plans, plain, strict=True)])),
        "cost_over_compute_optimal": interval(np.array(ratio)),
    }


def summary(plans: list[planner.Plan]) -> dict[str, Any]:
    """Median and 95% interval of N, D, D/N and the loss."""
    columns = {
        "N": [plan.N for plan in plans],
        "D": [plan.D for plan in plans],
        "D_per_N": [plan.D / plan.N for plan in plans],
        "loss_nats": [plan.loss_nats for plan in plans],
    }
    return {name: interval(np.array(values)) for name, values in columns.items()}


def next_run(runs: Runs, posterior: Posterior, target: float, C: float) -> dict[str, Any]:
    """The most telling run of at most C FLOPs, and the best per FLOP of those half as telling."""
    found = candidates(runs, posterior, target, C)
    if not found:
        return {"refused": f"no run of the sizes tried costs less than {C:.3g} FLOPs"}
    chosen = {"most_telling": found[0], "most_per_flop": best_per_flop(found)}
    return {
        "target_N": target,
        **{
            name: {"N": run.N, "D": run.D, "flops": run.flops, "shrink": run.shrink}
            for name, run in chosen.items()
        },
    }


if __name__ == "__main__":
    main()
