"""docs/ablations.md: the setting, the table of switches, how to run it again, what it does not say."""

from statistics import fmean, median, stdev

from ablation.comparison import Reach, Row, compare_rows, pair, reach
from ablation.paired_statistics import MOST_SEEDS, SMOOTHING
from ablation.plan import BASELINE, TUNED, Values, hydra
from ablation.runs import Run
from x1_pretrain.spikes.markdown import table

HEADER = (
    "switch",
    "changed",
    "loss minus baseline's [95%]",
    "p (Holm)",
    "verdict",
    "pairs",
    "pairs needed",
    "steps to its loss",
    "seconds to its loss",
    "time per token",
)

LEGEND = f"""\
Losses are validation losses in nats per token at the last step; a negative difference favours the switch. A
pair is two runs with one seed: the same batches in the same order. The interval is Student's t over the
pairs, for a row alone; p is Holm's, for all rows together, and a verdict takes p < 0.05. *Pairs needed* would
show a difference of the size seen with power 0.8 at Holm's strictest level. *Steps to its loss*: the first
step at which the training loss (mean of {SMOOTHING} steps and of the seeds) is at or below the baseline's
last; *seconds* are of training up to there (median of the seeds), without compilation and evaluation. *Time
per token* is over the baseline's, median and range of the pairs: where the range is wide, it is other work of
the machine that was measured. *0 in every pair*: equal losses to the bit, so there the switch did nothing."""

LIMITS = """\
- One shape and one horizon (above): what is worse here may be better for a wider model or a longer run, which
  is what some switches are for (muP, batch ramp, windows, soft-capped logits, z-loss).
- One lr, the baseline's, but for the rows under *Tuned lr*: a switch that wants another is at a disadvantage.
- One switch at a time: effects need not add up, and a switch may help only together with another.
- *Not distinguishable* is not *equal*: the interval says how large an effect may have gone unseen.
- One corpus, one tokenizer, and the seconds of one machine."""


def document(runs: list[Run], commit: str, committed: Values) -> str:
    """The whole file; `committed` are the commit's settings. Raises `UserError` if runs do not compare."""
    pairs_of = pair(runs)
    baselines = sorted((run for run in runs if run.row == BASELINE), key=lambda run: run.seed)
    trials = [run for run in runs if run.trial is not None]
    left_out = [row for row, pairs in pairs_of.items() if len(pairs) < 2]
    parts = [
        "# Ablations",
        f"Written by `python benchmarks/ablations.py report` from the experiments on commit `{commit[:12]}`.",
        "## Setting",
        setting(baselines),
        "## Switches",
        switches(compare_rows(pairs_of), baselines),
        LEGEND,
    ]
    if left_out:
        parts.append(
            f"Not in the table, for want of two finished pairs (not run, or failed): {', '.join(left_out)}."
        )
    if trials:
        parts += ["## Tuned lr", tuning(trials)]
    parts += ["## To run it again", again(baselines, committed), "## What the verdicts do not say", LIMITS]
    return "\n\n".join(parts) + "\n"


def setting(baselines: list[Run]) -> str:
    """What all runs have in common, and how the baseline does."""
    run, losses = baselines[0], [run.val_loss for run in baselines]
    values, metrics, model = run.values, run.metrics, run.values["model"]
    sizes = ("n_layer", "d_model", "n_head", "n_kv_head")
    shape = ", ".join(f"{size} {values[f'models.{model}.{size}']}" for size in sizes)
    recipe = [f"{k.split('.')[1]} {hydra(v)}" for k, v in values.items() if k.startswith("recipe.")]
    lrs = [f"{key} {values[f'train.{key}']}" for key in ("muon_lr", "adamw_lr", "embedding_lr")]
    hosts = sorted({run.measured["host"] for run in baselines if run.measured})
    times = [run.metrics["D"] / run.tokens_per_s for run in baselines if run.tokens_per_s]
    batch = f"{values['train.batch_sequences']} x {values['train.seq_len']}"
    lines = [
        f"profile `{values['profile']}`, model {model}: {shape}, N = {metrics['N']:,}",
        f"{metrics['steps']} steps of {batch} tokens, D = {metrics['D']:,}; validation on "
        f"{metrics['val_tokens']:,} tokens; seeds {', '.join(str(run.seed) for run in baselines)}",
        f"baseline: {', '.join(recipe)}; {', '.join(lrs)}",
        f"baseline's loss: {fmean(losses):.4f}, standard deviation over the seeds {stdev(losses):.4f}",
        f"{values['device.kind']}, {values['device.threads']} threads, {values['device.precision']}, "
        f"{'compiled' if values['device.compile'] else 'not compiled'}; "
        f"{', '.join(hosts) or 'machine not recorded'}; a baseline's training took "
        + (f"{median(times):.1f} s (median)" if times else "a time that was not measured"),
    ]
    return "\n".join(f"- {line}" for line in lines)


def switches(found: list[Row], baselines: list[Run]) -> str:
    """The table, the baseline first."""
    own = reach([(run, run) for run in baselines])
    first = ["baseline", "", "0", "", "", str(len(baselines)), "", *cells(own), "1.00"]
    lines = [first]
    for row in found:
        c = row.comparison
        nothing = c.mean == 0 and c.sd == 0
        lines.append(
            [
                row.name,
                "; ".join(f"`{key}` {hydra(a)} → {hydra(b)}" for key, (a, b) in row.changed.items()),
                "0 in every pair" if nothing else f"{c.mean:+.4f} [{c.low:+.4f}, {c.high:+.4f}]",
                f"{row.adjusted_p:.2g}",
                row.verdict,
                str(c.n),
                needed(row),
                *cells(row.reach),
                ratio(row),
            ]
        )
    return table(HEADER, lines, right=(3, 5, 6, 7, 8, 9))


def cells(reach: Reach) -> tuple[str, str]:
    """Steps and seconds, each null with its reason where it is not known."""
    null = f"null ({reach.reason})"
    step = null if reach.step is None else str(reach.step)
    return step, null if reach.seconds is None else f"{reach.seconds:.1f}"


def ratio(row: Row) -> str:
    """Time per token over the baseline's, with the range over the pairs."""
    if row.time_per_token is None:
        return "null (not timed)"
    middle, least, most = row.time_per_token
    return f"{middle:.2f} ({least:.2f} to {most:.2f})"


def needed(row: Row) -> str:
    """How many pairs it would take, where the verdict is open."""
    if row.verdict != "not distinguishable":
        return ""
    return f"over {MOST_SEEDS}" if row.needed is None else str(row.needed)


def tuning(trials: list[Run]) -> str:
    """Every trial of every tuned row, the best first, and a warning where that is at the grid's edge."""
    parts = []
    for row in sorted({run.row for run in trials}):
        tried = sorted((run for run in trials if run.row == row), key=lambda run: run.val_loss)
        best, grid = tried[0], TUNED[row]
        parts.append(
            f"{row}: one run each on seed {best.seed}, which is not one of the pairs; the first was taken."
        )
        edges = [key for key, values in grid.items() if best.values[key] in (min(values), max(values))]
        if edges:
            parts.append(f"The best {' and '.join(edges)} is at the edge of the grid; the row may be unfair.")
        lines = [[*(str(run.values[key]) for key in grid), f"{run.val_loss:.4f}"] for run in tried]
        parts.append(table([*grid, "loss"], lines, right=range(len(grid) + 1)))
    return "\n\n".join(parts)


def again(baselines: list[Run], committed: Values) -> str:
    """The commands, with whatever was set in every run."""
    values, model = baselines[0].values, baselines[0].values["model"]
    steps = round(baselines[0].metrics["D"] / values["train.batch_sequences"] / values["train.seq_len"])
    own = ("model", "seed", "sweep.models", "sweep.branches", f"models.{model}.flops")
    sets = [
        f" --set {key}={hydra(value)}"
        for key, value in values.items()
        if value != committed.get(key) and key not in own
    ]
    return f"""\
On that commit, after its `dvc repro`:

```
python benchmarks/ablations.py run --model {model} --steps {steps} --seeds {len(baselines)}{"".join(sets)}
python benchmarks/ablations.py report
```

Losses come out the same on the same kind of CPU; seconds do not."""
