"""The hard cap on money: an estimate before a run starts, a meter while it runs, an account after.

    python -m x1_pretrain.budget_guard preflight --profile tiny [--model X1] [--gpu a100-80gb]
    python -m x1_pretrain.budget_guard run --profile a100 -- dvc repro
    python -m x1_pretrain.budget_guard status

Exit status: 0 within the cap, 2 for bad input, 3 when the estimate is above the cap; `run` has the status
of its command, 124 when the time that the cap buys was over.
"""

import argparse
import dataclasses
import math
import os
import sys
from pathlib import Path

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json
from x1_pretrain.economics.cost import SECONDS_PER_HOUR, checked_price, positive
from x1_pretrain.economics.course import CourseTable
from x1_pretrain.economics.estimate import work_of
from x1_pretrain.economics.hardware import GPUS
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.economics.preflight import Preflight, age_text, peak_of
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.spending import alive
from x1_pretrain.study import Study, load_study, profile_path, study_of

ABOVE_CAP = 3
KILL_AFTER_S = 120  # between the signal that makes a trainer save and the one that ends it


def preflight(study: Study, arguments: argparse.Namespace) -> Preflight:
    """The sum for a study or one model. Raises `UserError` when a price meets unknown hours."""
    money = study.profile.money
    price = money.price_usd_per_hour if arguments.price is None else arguments.price
    source = f"{money.price_source}, {age_text(money.price_date)}" if arguments.price is None else "given"
    peak = peak_of(study, arguments.gpu or money.gpu, arguments.peak_flops)
    if peak.flops_per_s is None and checked_price(price, "--price") > 0:
        names = ", ".join(gpu.name for gpu in GPUS)
        raise UserError(
            f"{profile_path(study.choice.profile)}.device: the peak of this "
            f"{study.profile.device.kind} device is unknown and {price} $/h is not free; "
            f"give --peak-flops, or --gpu with one of {names}"
        )
    ledger = Ledger(arguments.ledger, money.project)
    return Preflight(
        runs=tuple(work_of(study, arguments.model)),
        peak=peak,
        mfu=money.assumed_mfu if arguments.mfu is None else arguments.mfu,
        price_usd_per_hour=checked_price(price, "--price"),
        price_source=source,
        storage=money.storage,
        spent_usd=ledger.total_usd(),
        committed_usd=math.fsum(a.expected_usd for a in ledger.attempts() if alive(a)),
        cap_usd=positive(money.cap_usd if arguments.cap is None else arguments.cap, "--cap"),
    )


def status_lines(study: Study, ledger: Ledger) -> list[str]:
    """Cap, spent, committed and left from the ledger, then each stage and run of it."""
    cap, attempts, spent = study.profile.money.cap_usd, ledger.attempts(), ledger.total_usd()
    committed = math.fsum(a.expected_usd for a in attempts if alive(a))
    lines = [
        f"{'cap':<14}{cap:.2f} $ ({profile_path(study.choice.profile)})",
        f"{'spent':<14}{spent:.4f} $ in {ledger.total_s():.0f} s ({ledger.path})",
        f"{'committed':<14}{committed:.4f} $ (runs under way)",
        f"{'left':<14}{max(0.0, cap - spent - committed):.4f} $",
    ]
    for stage, run_id in dict.fromkeys((a.stage, a.run_id) for a in attempts):
        own = [a for a in attempts if (a.stage, a.run_id) == (stage, run_id)]
        usd, seconds = math.fsum(a.charged_usd for a in own), math.fsum(a.charged_s for a in own)
        last = own[-1].status or ("running" if alive(own[-1]) else "killed")
        times = f"{len(own)} attempts" if len(own) > 1 else "1 attempt"
        lines.append(f"  {stage} {run_id}: {usd:.4f} $ in {seconds:.0f} s, {times}, the last {last}")
    for path in sorted(paths.MEASURED.glob("*.json")):
        elapsed_s = read_json(path).get("elapsed_s")
        took = "no duration recorded" if elapsed_s is None else f"{elapsed_s:.0f} s in its last run"
        lines.append(f"  measured {path.stem}: {took}")
    return lines


def run_within_cap(study: Study, ledger: Ledger, command: list[str]) -> None:
    """Become `timeout ... command`: it ends when the dollars left are spent, whatever the command does.

    The signal reaches the whole process group, so that a trainer saves before it is killed. On a machine
    that costs nothing there is no limit. Raises `UserError` when nothing is left or the command is unknown.
    """
    money = study.profile.money
    left_usd = money.cap_usd - ledger.total_usd()
    if money.price_usd_per_hour:
        left_s = left_usd / money.price_usd_per_hour * SECONDS_PER_HOUR - KILL_AFTER_S
        if left_s < 1:
            raise UserError(f"money.cap_usd: {left_usd:.2f} $ are left under the cap, too little to start")
        print(f"at most {left_s / 3600:.2f} h for the {left_usd:.2f} $ left", file=sys.stderr, flush=True)
        command = ["timeout", "--signal=TERM", f"--kill-after={KILL_AFTER_S}", f"{left_s:.0f}", *command]
    try:
        os.execvp(command[0], command)
    except FileNotFoundError as error:
        raise UserError(f"{command[0]}: no such command") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="budget_guard", description="the hard cap on money")
    commands = parser.add_subparsers(dest="command", required=True)
    before = commands.add_parser("preflight", help="the sum before a run; exits 3 above the cap")
    before.add_argument("--model", help="only this model's training; default: the whole study")
    before.add_argument("--gpu", help="a card of the hardware table, such as a100-80gb")
    before.add_argument("--peak-flops", type=float, help="peak FLOP/s, when no table knows it")
    before.add_argument("--price", type=float, help="$/h; default: the profile's")
    before.add_argument("--mfu", type=float, help="0 to 1; default: the profile's assumed_mfu")
    before.add_argument("--cap", type=float, help="$; default: the profile's cap_usd")
    during = commands.add_parser("run", help="a command, ended when the dollars left are spent")
    after = commands.add_parser("status", help="cap, spent, committed and left, per stage and run")
    for command in (before, during, after):
        command.add_argument("--profile", help="default: the profile of params.yaml")
        command.add_argument("--ledger", type=Path, default=paths.ledger())
    during.add_argument("arguments", nargs="+", metavar="command", help="after --, such as -- dvc repro")
    return parser


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    study = load_study()
    if arguments.profile is not None:
        study = study_of(dataclasses.replace(study.choice, profile=arguments.profile), "--profile")
    ledger = Ledger(arguments.ledger, study.profile.money.project)
    if arguments.command == "status":
        print("\n".join(status_lines(study, ledger)))
        return
    if arguments.command == "run":
        run_within_cap(study, ledger, arguments.arguments)
    estimate = preflight(study, arguments)
    lines, fits = estimate.lines(), estimate.fits
    if study.profile.money.gpu is not None and arguments.model is None:  # a rented machine
        course = CourseTable(estimate.price_usd_per_hour, estimate.egress_usd, estimate.cap_usd)
        lines, fits = [*course.lines(), "the study as it is configured", *lines], fits and course.fits
    print("\n".join(lines))
    if not fits:
        sys.exit(ABOVE_CAP)


if __name__ == "__main__":
    main()
