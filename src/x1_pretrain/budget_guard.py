"""The hard cap on money: an estimate before a run starts, a meter while it runs, an account after.

    python -m x1_pretrain.budget_guard preflight --profile tiny [--model X1] [--gpu a100-80gb]
    python -m x1_pretrain.budget_guard status

Exit status: 0 within the cap, 2 for bad input, 3 when the estimate is above the cap.
"""

import argparse
import dataclasses
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from x1_pretrain import paths
from x1_pretrain.config import Money
from x1_pretrain.deliverables.files import read_json
from x1_pretrain.economics.cost import checked_price, positive, usd_for
from x1_pretrain.economics.estimate import work_of
from x1_pretrain.economics.hardware import GPUS
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.economics.preflight import MARGIN, Preflight, peak_of
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.study import Study, load_study, profile_path, study_of

ABOVE_CAP = 3


@dataclass(frozen=True)
class BudgetGuard:
    """The meter of a training loop; the caller passes seconds of a monotonic clock."""

    price_usd_per_hour: float
    cap_usd: float
    already_spent_usd: float = 0.0

    def __post_init__(self) -> None:
        checked_price(self.price_usd_per_hour)
        positive(self.cap_usd, "cap_usd")
        checked_price(self.already_spent_usd, "already_spent_usd")

    def refuse_above_cap(self, estimate_s: float) -> None:
        """Raise `UserError` if what is left to do would end above the cap, 10% margin included."""
        work_usd = usd_for(estimate_s, self.price_usd_per_hour)
        total_usd = self.already_spent_usd + work_usd * (1 + MARGIN)
        if work_usd and total_usd > self.cap_usd:
            raise UserError(
                f"money.cap_usd: this run would take {estimate_s / 3600:.2f} h at "
                f"{self.price_usd_per_hour} $/h; with a margin of {MARGIN:.0%} and the "
                f"{self.already_spent_usd:.2f} $ already spent that is {total_usd:.2f} $, above the cap of "
                f"{self.cap_usd:.2f} $; lower the model's flops or train on a cheaper machine"
            )

    def spent_usd(self, elapsed_s: float) -> float:
        """Dollars spent, earlier attempts included. Raises `UserError` for a negative duration."""
        return self.already_spent_usd + usd_for(elapsed_s, self.price_usd_per_hour)

    def exhausted(self, elapsed_s: float) -> bool:
        """Whether the cap is reached; on a machine that costs nothing it never is."""
        return self.price_usd_per_hour > 0 and self.spent_usd(elapsed_s) >= self.cap_usd


class Spending:
    """A run's own meter: what it costs as it goes, in the ledger of the whole project and against the cap."""

    def __init__(self, run_id: str, money: Money) -> None:
        self.run_id, self.price, self.ledger = run_id, money.price_usd_per_hour, Ledger(paths.ledger())
        self.guard = BudgetGuard(self.price, money.cap_usd, self.ledger.total_usd())
        self.charged_until = time.monotonic()

    def charge(self) -> None:
        """Write down the time since the last charge."""
        now = time.monotonic()
        if self.price > 0:
            self.ledger.charge(self.run_id, now - self.charged_until, self.price)
            self.guard = dataclasses.replace(self.guard, already_spent_usd=self.ledger.total_usd())
        self.charged_until = now

    def exhausted(self) -> bool:
        """Whether the cap is reached, this moment included."""
        return self.guard.exhausted(time.monotonic() - self.charged_until)


def preflight(study: Study, arguments: argparse.Namespace) -> Preflight:
    """The sum for a study or one model. Raises `UserError` when a price meets unknown hours."""
    money = study.profile.money
    price = money.price_usd_per_hour if arguments.price is None else arguments.price
    source = f"{money.price_source}, {money.price_date}" if arguments.price is None else "given"
    peak = peak_of(study, arguments.gpu or money.gpu, arguments.peak_flops)
    if peak.flops_per_s is None and checked_price(price, "--price") > 0:
        names = ", ".join(gpu.name for gpu in GPUS)
        raise UserError(
            f"{profile_path(study.choice.profile)}.device: the peak of this "
            f"{study.profile.device.kind} device is unknown and {price} $/h is not free; "
            f"give --peak-flops, or --gpu with one of {names}"
        )
    return Preflight(
        runs=tuple(work_of(study, arguments.model)),
        peak=peak,
        mfu=money.assumed_mfu if arguments.mfu is None else arguments.mfu,
        price_usd_per_hour=checked_price(price, "--price"),
        price_source=source,
        spent_usd=Ledger(arguments.ledger).total_usd(),
        cap_usd=positive(money.cap_usd if arguments.cap is None else arguments.cap, "--cap"),
    )


def status_lines(study: Study, ledger: Ledger) -> list[str]:
    """Cap, spent and left from the ledger, per run; then the duration of each measured stage."""
    cap, spent = study.profile.money.cap_usd, ledger.total_usd()
    lines = [
        f"{'cap':<14}{cap:.2f} $ ({profile_path(study.choice.profile)})",
        f"{'spent':<14}{spent:.4f} $ in {ledger.total_s():.0f} s ({ledger.path})",
        f"{'left':<14}{max(0.0, cap - spent):.4f} $",
    ]
    for run_id in dict.fromkeys(entry.run_id for entry in ledger.entries()):
        lines.append(f"  {run_id}: {ledger.total_usd(run_id):.4f} $ in {ledger.total_s(run_id):.0f} s")
    for path in sorted(paths.MEASURED.glob("*.json")):
        elapsed_s = read_json(path).get("elapsed_s")
        took = "no duration recorded" if elapsed_s is None else f"{elapsed_s:.0f} s in its last run"
        lines.append(f"  measured {path.stem}: {took}")
    return lines


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
    after = commands.add_parser("status", help="cap, spent and left")
    for command in (before, after):
        command.add_argument("--profile", help="default: the profile of params.yaml")
        command.add_argument("--ledger", type=Path, default=paths.ledger())
    return parser


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    study = load_study()
    if arguments.profile is not None:
        study = study_of(dataclasses.replace(study.choice, profile=arguments.profile), "--profile")
    if arguments.command == "status":
        print("\n".join(status_lines(study, Ledger(arguments.ledger))))
        return
    estimate = preflight(study, arguments)
    print("\n".join(estimate.lines()))
    if not estimate.fits:
        sys.exit(ABOVE_CAP)


if __name__ == "__main__":
    main()
