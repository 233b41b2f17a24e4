"""Does the spike lab name the right cause? Every injection and clean runs, 5 seeds, 2 sizes: one JSON line.

python benchmarks/spike_lab.py                 seeds 0 to 4, which set no threshold
python benchmarks/spike_lab.py --calibrate     seeds 100 to 104, and the table of spikes/calibration.py
"""

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context

from incidents.cases import CLEAN, SIZES, Result, run_case, setting

from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.spikes.calibration import MOST_AGAINST
from x1_pretrain.spikes.injections import KINDS
from x1_pretrain.study import study_from

SEEDS, CALIBRATION_SEEDS = range(5), range(100, 105)


def run_seed(task: tuple[str, int, tuple[str, ...]]) -> list[Result]:
    """All cases of one size and seed, in one process."""
    size, seed, kinds = task
    study = study_from("tiny")
    shared, calm = setting(study.profile.train, study.choice.recipe), {}
    results = []
    for kind in kinds:
        result, _ = run_case(shared, size, seed, kind, calm)
        results.append(result)
        said = "no incident" if result.cause is None else f"{result.cause}/{result.subtype}"
        mark = "right" if result.right else "WRONG"
        print(f"{size} seed {seed} {kind}: {said}, {mark}, {result.rule}", file=sys.stderr, flush=True)
    return results


def confusion(results: list[Result]) -> dict[str, dict[str, int]]:
    """How often each injection was given each verdict."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        table[result.injection][result.cause or "not detected"] += 1
    return {injection: dict(row) for injection, row in table.items()}


def calibration(results: list[Result]) -> dict[int, tuple[int, int]]:
    """Tests against a verdict -> (right verdicts, verdicts), over all that name a cause."""
    table = {}
    for against in range(MOST_AGAINST + 1):
        named = [
            r
            for r in results
            if r.against is not None and min(r.against, MOST_AGAINST) == against and r.cause != "undetermined"
        ]
        table[against] = (sum(r.right for r in named), len(named))
    return table


def summary(results: list[Result], elapsed_s: float) -> dict[str, object]:
    injected = [r for r in results if r.injection != CLEAN]
    clean = [r for r in results if r.injection == CLEAN]
    ranges = [r.range_right for r in injected if r.range_right is not None]
    undetected = [r for r in injected if r.cause is None and KINDS[r.injection].on == "batch"]
    return {
        "benchmark": "spike_lab",
        "cases": len(results),
        "verdict_right": sum(r.right for r in injected) / max(1, len(injected)),
        "range_right": sum(ranges) / max(1, len(ranges) + len(undetected)),
        "clean_right": sum(r.right for r in clean) / max(1, len(clean)),
        "undetermined": sum(r.cause == "undetermined" for r in injected),
        "confusion": confusion(results),
        "wrong": [asdict(r) for r in results if not r.right or r.range_right is False],
        "confidence_right": {str(k): v for k, v in calibration(results).items()},
        "elapsed_s": round(elapsed_s, 1),
    }


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calibrate", action="store_true", help="on the seeds kept for calibration")
    parser.add_argument("--seeds", type=int, nargs="+", help="other seeds")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--injections", nargs="+", default=[*KINDS, CLEAN], choices=[*KINDS, CLEAN])
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args(argv)
    if arguments.processes < 1:
        raise UserError(f"--processes {arguments.processes}: must be at least 1")
    seeds = arguments.seeds or list(CALIBRATION_SEEDS if arguments.calibrate else SEEDS)
    clock = time.monotonic()
    tasks = [(size, seed, tuple(arguments.injections)) for seed in seeds for size in arguments.sizes]
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        results = [result for part in pool.map(run_seed, tasks) for result in part]
    print(json.dumps(summary(results, time.monotonic() - clock)))
    if arguments.calibrate:
        print(f"RIGHT_OF = {calibration(results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
