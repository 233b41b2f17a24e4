"""Rent a GPU with SkyPilot, run the study there, bring results and ledger home:

    python -m x1_pretrain.cloud --dry-run --profile a100    # every command, and the worst bill
    python -m x1_pretrain.cloud                             # do it, for the profile of params.yaml
    python -m x1_pretrain.cloud --fetch                     # only what comes after the study

The machine is torn down at a time that follows from the cap, whatever it is doing then.
"""

import argparse
import dataclasses
import math
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from x1_pretrain import paths
from x1_pretrain.config import Money
from x1_pretrain.deliverables.files import write_bytes, write_text
from x1_pretrain.economics.cost import SECONDS_PER_HOUR, usd_for
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.study import load_study, profile_path, study_of

TASK = Path("cloud/sky.yaml")
SCRIPT = Path("cloud/on_machine.sh")  # what the task runs
CLUSTER = "x1"
STARTING_MINUTES = 20  # charged, but not counted by SkyPilot's clock: being started, being torn down
PUSHING_MINUTES = 30  # of the time before the kill, kept from `dvc repro`
OTHER_USD = 3.0  # disk and egress: the course's figure for 200 GB
# What the machine makes that Git keeps. The checkpoint and the tokens come through DVC's remote.
RESULTS = ("dvc.lock", "data/curation.json", "data/tokens.json", "experiments")
NOT_RESULTS = ("experiments/X1-pretraining/run-cloud/checkpoint", "experiments/profiles")


@dataclass(frozen=True)
class Rental:
    """How long a machine may live on what the cap leaves. Raises `UserError` if that is no time at all."""

    money: Money
    spent_usd: float
    hours: float | None = None  # a lower limit that the user wants

    def __post_init__(self) -> None:
        if self.money.price_usd_per_hour <= 0 or self.money.gpu is None:
            raise UserError(
                "money: a machine is rented for a price above 0 $/h and a named gpu, this profile has "
                f"{self.money.price_usd_per_hour} $/h and {self.money.gpu}; set profile: a100 in params.yaml"
            )
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise UserError(f"--hours: {self.hours} is not a duration; use a number above 0, such as 24")
        if self.work_minutes < 1:
            raise UserError(
                f"money.cap_usd: {self.money.cap_usd:.2f} $ less {self.spent_usd:.2f} $ already spent and "
                f"{OTHER_USD:.2f} $ for disk and egress leaves no time to train at "
                f"{self.money.price_usd_per_hour} $/h; raise the cap"
            )

    @property
    def kill_minutes(self) -> int:
        """When the machine is torn down: (cap - spent - disk and egress) / price, less its start and end."""
        left_usd = self.money.cap_usd - self.spent_usd - OTHER_USD
        minutes = left_usd / self.money.price_usd_per_hour * 60 - STARTING_MINUTES
        return math.floor(minutes if self.hours is None else min(minutes, self.hours * 60))

    @property
    def work_minutes(self) -> int:
        return self.kill_minutes - PUSHING_MINUTES

    @property
    def worst_usd(self) -> float:
        """The bill if the machine is killed, above what was spent before."""
        seconds = (self.kill_minutes + STARTING_MINUTES) * SECONDS_PER_HOUR / 60
        return usd_for(seconds, self.money.price_usd_per_hour) + OTHER_USD

    def lines(self) -> list[str]:
        """The sum of the worst bill."""
        price = self.money.price_usd_per_hour
        machine = self.kill_minutes + STARTING_MINUTES
        return [
            f"{'price':<16}{price:.4g} $/h ({self.money.price_source}, {self.money.price_date})",
            f"{'killed after':<16}{self.kill_minutes} min, dvc repro after {self.work_minutes} min",
            f"{'machine':<16}{machine * price / 60:.2f} $ ({machine} min, start and end included)",
            f"{'disk, egress':<16}{OTHER_USD:.2f} $",
            f"{'worst bill':<16}{self.worst_usd:.2f} $",
            f"{'already spent':<16}{self.spent_usd:.2f} $ (ledger)",
            f"{'cap':<16}{self.money.cap_usd:.2f} $",
        ]


def task_for(rental: Rental, template: str, ledger: Path) -> str:
    """sky.yaml with the rental's numbers and the ledger in it. Raises `UserError` if one has no place."""
    numbers = {
        r"spent\.jsonl: (\S+)": str(ledger),
        r"accelerators: {(.+?):": str(rental.money.gpu).upper(),
        r"max_hourly_cost: (\S+)": str(rental.money.price_usd_per_hour),
        r"idle_minutes: (\d+)": str(rental.kill_minutes),
        r'WORK_MINUTES: "(\d+)"': str(rental.work_minutes),
    }
    for pattern, value in numbers.items():
        places = list(re.finditer(pattern, template))
        if len(places) != 1:
            raise UserError(
                f"{TASK}: {pattern.split(':')[0]} must stand there once, found {len(places)} times"
            )
        begin, end = places[0].span(1)
        template = template[:begin] + value + template[end:]
    return template


@dataclass(frozen=True)
class Commands:
    """What is run here, in order: `launch` returns when the study has ended there."""

    task: Path
    fetched_ledger: Path

    @property
    def launch(self) -> list[str]:
        return ["sky", "launch", "--yes", "--cluster", CLUSTER, str(self.task)]

    @property
    def results(self) -> list[str]:
        excluded = [f"--exclude=/{path}" for path in NOT_RESULTS]
        there = [f"{CLUSTER}:sky_workdir/./{path}" for path in RESULTS]
        return ["rsync", "-az", "--relative", "--ignore-missing-args", *excluded, *there, "."]

    @property
    def ledger(self) -> list[str]:
        return ["rsync", "-az", f"{CLUSTER}:sky_workdir/.scratch/ledger.jsonl", str(self.fetched_ledger)]

    @property
    def checkpoint(self) -> list[str]:
        return ["dvc", "pull", "--allow-missing"]

    @property
    def down(self) -> list[str]:
        return ["sky", "down", "--yes", CLUSTER]


def adopt_ledger(fetched: Path, own: Path) -> None:
    """Make the machine's ledger this project's: it is the one sent there, with lines added.

    Raises `UserError` if this project spent money of its own in the meantime, and leaves both as they are.
    """
    before = own.read_bytes() if own.is_file() else b""
    if not fetched.read_bytes().startswith(before):
        raise UserError(
            f"{own}: it has charges that the machine's ledger ({fetched}) lacks, so something else was "
            f"charged while the machine ran; append the machine's new lines to {own} by hand"
        )
    write_bytes(own, fetched.read_bytes())
    fetched.unlink()


def fetch(commands: Commands, own_ledger: Path) -> None:
    """Results and ledger home, then the machine away. What could not be fetched keeps the machine alive."""
    for command in (commands.results, commands.ledger):
        if _run(command) != 0:
            raise UserError(
                f"{shlex.join(command)}: failed; if there is a machine it is kept, until its kill at the "
                "latest; `python -m x1_pretrain.cloud --fetch` tries again"
            )
    adopt_ledger(commands.fetched_ledger, own_ledger)
    if _run(commands.down) != 0:
        raise UserError(
            f"{shlex.join(commands.down)}: failed; look at `sky status`, the machine may still cost"
        )
    if _run(commands.checkpoint) != 0:
        raise UserError("dvc pull: failed; the results are here, the checkpoint is in DVC's remote")


def refuse_to_start() -> None:
    """Raise `UserError` where a run would end with nothing to show, before anything is rented."""
    for tool in ("sky", "rsync", "dvc"):
        if shutil.which(tool) is None:
            raise UserError(f"{tool}: not installed or not on PATH; cloud/README.md says how to get it")
    config = ConfigParser()
    config.read(".dvc/config")  # config.local stays here
    if not config.get("core", "remote", fallback=None):
        raise UserError(
            ".dvc/config: it names no remote, so the machine could push nothing; add one with "
            "`dvc remote add -d store s3://<bucket>/<path>` and commit that file"
        )


def _run(command: list[str]) -> int:
    print(f"$ {shlex.join(command)}", flush=True)
    return subprocess.run(command, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cloud", description="the study on a rented GPU")
    parser.add_argument("--dry-run", action="store_true", help="print every command and the worst bill only")
    parser.add_argument("--profile", help="with --dry-run: another profile than that of params.yaml")
    parser.add_argument("--hours", type=float, help="kill the machine earlier than the cap would")
    parser.add_argument("--fetch", action="store_true", help="only bring results home and end the machine")
    return parser


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    study = load_study()
    if arguments.profile is not None:
        if arguments.profile != study.choice.profile and not arguments.dry_run:
            raise UserError(
                f"--profile: the machine runs what params.yaml says, which is {study.choice.profile}; set "
                f"profile: {arguments.profile} there"
            )
        study = study_of(dataclasses.replace(study.choice, profile=arguments.profile), "--profile")
    own_ledger = paths.ledger()
    commands = Commands(paths.scratch_root() / "cloud/sky.yaml", paths.scratch_root() / "cloud/ledger.jsonl")
    money = study.profile.money
    rental = Rental(money, Ledger(own_ledger, money.project).total_usd(), arguments.hours)
    print(f"profile {study.choice.profile} ({profile_path(study.choice.profile)})", *rental.lines(), sep="\n")
    task = task_for(rental, TASK.read_text(encoding="utf-8"), own_ledger)
    if arguments.dry_run:
        print(f"\n# {commands.task}", task, f"# {SCRIPT}, there", SCRIPT.read_text("utf-8"), sep="\n")
        for command in (
            commands.launch,
            commands.results,
            commands.ledger,
            commands.down,
            commands.checkpoint,
        ):
            print(f"$ {shlex.join(command)}")
        return
    refuse_to_start()
    commands.task.parent.mkdir(parents=True, exist_ok=True)
    status = 0
    if not arguments.fetch:
        own_ledger.parent.mkdir(parents=True, exist_ok=True)
        own_ledger.touch()  # SkyPilot mounts it
        write_text(commands.task, task)
        status = _run(commands.launch)
    fetch(commands, own_ledger)
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
