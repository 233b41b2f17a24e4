"""How long until our loss is a peer's best: one JSON line with the ratios of training seconds and tokens.

    python benchmarks/time_to_loss.py --peer ../nanochat --peer-kind nanochat

The peer runs from its own checkout, its lr swept; ours is one run with the study's own lr, and a branch for
each horizon. Same shards, batches, shape, validation tokens, machine and threads. Progress is on stderr.
"""

import json
import math
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from contest.our_side import OurRun, OurSide, on_terms, spec_for
from contest.peer_side import PeerRun, PeerSide
from contest.plan import Plan, parser_of, plan_of, terms_of
from contest.processes import Side
from contest.terms import Data, Terms
from contest.verdict import alternate, best_of, ratios, shortest
from settings import with_recipe
from shards import CACHE, folder_for

from x1_pretrain.determinism import cpu_name
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.study import study_from

ROUNDS = 3  # blocks of timed steps, each side's in turn
NANOCHAT_DTYPE = {"bf16": "bfloat16", "fp32": "float32"}


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    options = parser_of(__doc__).parse_args(argv)
    study, plan = with_recipe(study_from(options.config), options.set), plan_of(options)
    terms = terms_of(options, study, folder_for(options, study))
    spec_for(on_terms(study, terms), plan.horizons)  # a horizon that cannot be is refused before any compute
    with tempfile.TemporaryDirectory(prefix="time-to-loss-") as name:
        folder = Path(name)
        # Both sides compile from nothing; a smoke run may use what an earlier one compiled.
        compiled = CACHE.resolve() if options.quick else folder
        peer_environment = {
            "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor-peer"),
            "NANOCHAT_DTYPE": NANOCHAT_DTYPE[terms.precision],
        }
        our_environment = {
            "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor-ours"),
            "X1_SCRATCH": str(folder / "scratch"),  # a benchmark never resumes
        }
        with (
            Side(peer_environment, PeerSide, options.peer_kind, options.peer, terms) as peer,
            Side(our_environment, OurSide, study, terms) as ours,
        ):
            result = contest(peer, ours, plan, terms)
    result = {"benchmark": "time_to_loss", "peer_kind": options.peer_kind, **result, "quick": options.quick}
    print(json.dumps(result))


def contest(peer: Side, ours: Side, plan: Plan, terms: Terms) -> dict[str, Any]:
    """The peer's sweep, our horizons, our shortest one alone, and both step times in turn."""
    runs: list[PeerRun] = []
    for lr in plan.lrs:
        runs.append(peer.call("run", lr, plan.steps))
        say(f"peer, lr {lr:g}: {runs[-1].loss_nats:.4f} nats, {runs[-1].step_s:.4f} s a step")
    best = best_of(runs)
    branches: OurRun = ours.call("train", plan.horizons)
    for point in branches.points:
        say(f"ours, {point.steps} steps: {point.loss_nats:.4f} nats")
    alone = shortest(branches.points, best.loss_nats, lambda steps: ours.call("train", (steps,)))
    peer_step_s, our_step_s = alternate(
        lambda: peer.call("time_steps", best.lr, plan.timed_steps),
        lambda: ours.call("time_steps", plan.timed_steps),
        ROUNDS,
    )
    tokens = Data(terms).tokens
    peer_tokens = plan.steps * terms.batch_tokens
    found = ratios(best, plan.steps, peer_tokens, peer_step_s, alone, our_step_s)
    return {
        **asdict(found),
        "peer": {
            **peer.call("facts"),
            "loss_nats": best.loss_nats,
            "lr": best.lr,
            "steps": plan.steps,
            "tokens": peer_tokens,
            "seconds": plan.steps * statistics.median(peer_step_s),
            "step_s": peer_step_s,
            "step_s_in_run": best.step_s,
            "compile_s": runs[0].first_step_s,
            "runs": [{**asdict(run), "loss_nats": or_null(run.loss_nats)} for run in runs],
        },
        "ours": {
            **(our_result(alone, our_step_s) if alone else {}),
            "step_s": our_step_s,
            "compile_s": branches.first_step_s,
            "horizons": [asdict(point) for point in branches.points],
            **ours.call("facts"),
        },
        "terms": {**asdict(terms), "tokens": str(terms.tokens)},
        "n_vocab": tokens.n_vocab,
        "data_sha256": tokens.data_sha256,
        "threads": terms.threads,
        "cpu": cpu_name(),
        "torch": torch.__version__,
    }


def our_result(alone: OurRun, step_s: list[float]) -> dict[str, float]:
    """The run of just the shortest horizon."""
    (point,) = alone.points
    return {
        **asdict(point),
        "seconds": point.steps * statistics.median(step_s),
        "step_s_in_run": alone.step_s,
    }


def or_null(loss_nats: float) -> float | None:
    """JSON has no NaN: the loss of an lr that diverged is null."""
    return loss_nats if math.isfinite(loss_nats) else None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
