"""From finished runs to the rows of the table: each switch's runs paired with the baseline's by seed.

A row is compared only if its runs differ from the baseline in nothing but the row's own settings; what was
not measured stays None, with the reason beside it.
"""

from dataclasses import dataclass
from statistics import median

from ablation.paired_statistics import (
    Comparison,
    Verdict,
    compare,
    first_reach,
    gap_at_end,
    holm,
    seeds_needed,
    verdict,
)
from ablation.plan import BASELINE, TUNED, rows
from ablation.runs import Run
from x1_pretrain.errors import UserError

Pairs = list[tuple[Run, Run]]  # (switch, baseline), one pair per seed


@dataclass(frozen=True)
class Reach:
    """When the baseline's final training loss is reached, and why that is not known where it is None."""

    step: int | None
    seconds: float | None
    reason: str


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    changed: dict[str, tuple[object, object]]  # key -> (baseline's value, the row's)
    comparison: Comparison
    adjusted_p: float
    verdict: Verdict
    needed: int | None
    reach: Reach
    time_per_token: tuple[float, float, float] | None  # over the baseline's: median, least, most


def pair(runs: list[Run]) -> dict[str, Pairs]:
    """Row -> its pairs, for every row there should be. Raises `UserError` for runs that do not belong."""
    baselines = {run.seed: run for run in runs if run.row == BASELINE}
    if len(baselines) < 2:
        raise UserError(
            f"{len(baselines)} finished experiments are named ablation-{BASELINE}-...; it takes 2"
        )
    reference = baselines[min(baselines)]
    expected = rows(reference.values, reference.values["model"])
    pairs: dict[str, Pairs] = {row: [] for row in expected}
    for run in runs:
        if run.row == BASELINE:
            refuse_other_settings(run, reference, set())
        elif run.row in expected and run.trial is None and run.seed in baselines:
            refuse_other_settings(run, reference, {*expected[run.row], *TUNED.get(run.row, ())})
            pairs[run.row].append((run, baselines[run.seed]))
    return pairs


def refuse_other_settings(run: Run, reference: Run, own: set[str]) -> None:
    """Raise `UserError` if a run differs from the baseline in more than its own settings and the seed."""
    implied = {"seed"}
    if any(key.startswith("models.") for key in own):
        implied.add(f"models.{run.values['model']}.flops")  # the same steps at another N
    for key in sorted(run.values.keys() | reference.values.keys()):
        here, there = run.values.get(key), reference.values.get(key)
        if here != there and key not in own | implied:
            raise UserError(
                f"{run.name}: its {key} is {here}, that of {reference.name} is {there}; take it away with "
                f"`dvc exp remove {run.name}` and run it again with the settings of the others"
            )


def compare_rows(pairs_of: dict[str, Pairs]) -> list[Row]:
    """The table, for the rows that have two pairs or more; Holm's correction is over these."""
    enough = {row: pairs for row, pairs in pairs_of.items() if len(pairs) > 1}
    comparisons = [compare([run.val_loss - base.val_loss for run, base in p]) for p in enough.values()]
    adjusted = holm([comparison.p for comparison in comparisons])
    return [
        Row(
            name=name,
            changed=changes(*pairs[0]),
            comparison=comparison,
            adjusted_p=p,
            verdict=verdict(comparison, p),
            needed=seeds_needed(comparison, len(comparisons)),
            reach=reach(pairs),
            time_per_token=time_per_token(pairs),
        )
        for (name, pairs), comparison, p in zip(enough.items(), comparisons, adjusted, strict=True)
    ]


def changes(run: Run, base: Run) -> dict[str, tuple[object, object]]:
    """What a run sets that its baseline does not; the flops follow from the steps."""
    implied = f"models.{run.values['model']}.flops"
    return {
        key: (base.values[key], value)
        for key, value in run.values.items()
        if value != base.values[key] and key != implied
    }


def reach(pairs: Pairs) -> Reach:
    """Steps and seconds of training to the baseline's final loss; see `first_reach`."""
    curves, baselines = [run.train_loss for run, _ in pairs], [base.train_loss for _, base in pairs]
    if len({run.step for run, _ in pairs}) > 1:
        return Reach(None, None, "its runs are of different lengths")
    at = first_reach(curves, baselines)
    if at is None:
        return Reach(None, None, f"ends {gap_at_end(curves, baselines):.4f} nats above")
    step, tokens = pairs[0][0].step[at], pairs[0][0].tokens[at]
    seconds = [tokens / run.tokens_per_s for run, _ in pairs if run.tokens_per_s]
    if not seconds:
        return Reach(step, None, "not timed")
    return Reach(step, median(seconds), "")


def time_per_token(pairs: Pairs) -> tuple[float, float, float] | None:
    """The row's time per token over the baseline's, one ratio a pair: median, least, most; None: not timed.

    How far the ratios lie apart says how much of them is the machine's other work.
    """
    ratios = [b.tokens_per_s / r.tokens_per_s for r, b in pairs if b.tokens_per_s and r.tokens_per_s]
    return (median(ratios), min(ratios), max(ratios)) if ratios else None
