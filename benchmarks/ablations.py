"""Is each switch of the recipe worth having? Every switch against the baseline on paired seeds, through DVC.

    python benchmarks/ablations.py queue     put the experiments that are missing into DVC's queue
    python benchmarks/ablations.py run       the same, and work the queue off
    python benchmarks/ablations.py report    write docs/ablations.md from the finished experiments

The rows follow from params.yaml (see ablation/plan.py). A model with one head has no row for n_kv_head;
`--set models.B.n_head=2 --set models.B.n_kv_head=2` gives it two in every run. A row whose lr must be its own
is tuned first, on a seed that is not one of the paired ones; then come the pairs of all rows.
An experiment belongs to the commit it was queued on and trains with that commit's code. What is finished is
not run again. What failed is named, and retried after `dvc queue remove --failed`. Ctrl-C leaves the queue
running; `dvc queue stop --kill` ends it.
"""

import argparse
import sys
from pathlib import Path

from ablation.document import document
from ablation.plan import Plan, Planned, Values, load_plan, rows
from ablation.queue import commit_to_run_on, drain, finished, put, states
from ablation.runs import commit_with_runs, read_runs, values_of
from settings import setting

from x1_pretrain.deliverables.files import write_text
from x1_pretrain.errors import UserError, exit_on_user_error


def wanted_now(plan: Plan, seeds: int, only: list[str], commit: str) -> tuple[list[Planned], bool]:
    """The experiments to be run next, and whether more follow from their results."""
    table = rows(plan.values, plan.model)
    for row in only:
        if row not in table:
            raise UserError(f"--row {row}: not in the table; its rows are {', '.join(table)}")
    chosen = {row: settings for row, settings in table.items() if not only or row in only}
    trials = {row: plan.tuning(row, settings) for row, settings in chosen.items()}
    names, state = finished(commit), states(commit)
    undecided = [
        planned
        for row in trials.values()
        for name, (planned, _) in row.items()
        if name not in names and state.get(name) != "Failed"
    ]
    if undecided:
        return undecided, True
    for row, tried in trials.items():
        if tried:
            chosen[row] = best_trial(row, tried, commit)
    return plan.paired(chosen, seeds), False


def best_trial(row: str, tried: dict[str, tuple[Planned, Values]], commit: str) -> Values:
    """The settings with the lowest validation loss. Raises `UserError` if no trial finished."""
    losses = {run.name: run.val_loss for run in read_runs(commit) if run.name in tried}
    if not losses:
        raise UserError(f"{row}: every run of its tuning failed; see `dvc queue logs {next(iter(tried))}`")
    return tried[min(losses, key=losses.__getitem__)][1]


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("queue", "run"):
        command = commands.add_parser(name)
        command.add_argument("--model", default="B", help="a model of the profile (default: B)")
        command.add_argument("--steps", type=int, default=250, help="optimizer steps of every run")
        command.add_argument(
            "--jobs", type=int, default=1, help="experiments at a time; more share the cores"
        )
        command.add_argument("--seeds", type=int, default=5, help="paired seeds, from 0 (default: 5)")
        command.add_argument("--row", action="append", default=[], help="only this row; may be repeated")
        command.add_argument(
            "--set", action="append", default=[], help="KEY=VALUE in every run; may be repeated"
        )
    command = commands.add_parser("report")
    command.add_argument("--output", type=Path, default=Path("docs/ablations.md"))
    command.add_argument("--revision", default="HEAD", help="report the newest ablations up to this commit")
    arguments = parser.parse_args(argv)
    if arguments.command == "report":
        commit = commit_with_runs(arguments.revision)
        write_text(arguments.output, document(read_runs(commit), commit, values_of(commit)))
        print(f"written to {arguments.output}")
        return
    for option in ("steps", "seeds", "jobs"):
        if getattr(arguments, option) < 1:
            raise UserError(f"--{option} {getattr(arguments, option)}: must be at least 1")
    plan = load_plan(arguments.model, arguments.steps, dict(map(setting, arguments.set)))
    commit, more, failed = commit_to_run_on(), True, {}
    while more:
        experiments, more = wanted_now(plan, arguments.seeds, arguments.row, commit)
        put(experiments, commit)
        if arguments.command == "queue":
            print("then `run` queues what the tuning decides" if more else "all that is missing is queued")
            return
        failed |= drain([experiment.name for experiment in experiments], commit, arguments.jobs)
    for name, why in failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
