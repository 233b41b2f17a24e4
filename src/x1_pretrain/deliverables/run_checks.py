"""Cross-checks of the selected run: manifest, metrics, curve, checkpoint and tokens agree."""

from pathlib import Path

from x1_pretrain import paths
from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.deliverables.parsed import Files, close, unequal
from x1_pretrain.deliverables.problems import Problem

CURVE_PRECISION = 1e-5  # the curve is written with six digits


def manifest_is_of_the_selected_run(files: Files) -> list[Problem]:
    """Profile, model and seed of the manifest are those of params.yaml."""
    manifest, choice = files[paths.MANIFEST], files.study.choice
    expected = {"profile": choice.profile, "model": choice.model, "seed": choice.seed}
    return list(unequal(paths.MANIFEST, manifest, expected, str(paths.PARAMS)))


def manifest_has_the_metrics(files: Files) -> list[Problem]:
    """`results` of the manifest is metrics.json."""
    results, metrics = files[paths.MANIFEST]["results"], files[paths.METRICS]
    return list(unequal(paths.MANIFEST, results, metrics, str(paths.METRICS), "$.results"))


def checkpoint_is_the_manifests(files: Files) -> list[Problem] | None:
    """Name, size and sha256 of the weights' file are in the manifest."""
    recorded = files[paths.MANIFEST]["checkpoint"]
    weights = paths.CHECKPOINT / Path(recorded["file"]).name
    if not paths.CHECKPOINT.is_dir():
        return None
    if not weights.is_file():
        reason = f"{weights} is not in the checkpoint"
        return [Problem(str(paths.MANIFEST), "$.checkpoint.file", reason)]
    actual = {"sha256": sha256_of(weights), "bytes": weights.stat().st_size}
    return list(unequal(paths.MANIFEST, recorded, actual, str(weights), "$.checkpoint"))


def manifest_has_the_tokens(files: Files) -> list[Problem]:
    """The run trained on the tokens of data/tokens.json: the same data hash and tokenizer."""
    tokens = files[paths.TOKENS_SUMMARY]
    expected = {"data_sha256": tokens["data_sha256"], "tokenizer": tokens["tokenizer"]}
    data = files[paths.MANIFEST]["data"]
    return list(unequal(paths.MANIFEST, data, expected, str(paths.TOKENS_SUMMARY), "$.data"))


def spending_is_within_the_cap(files: Files) -> list[Problem]:
    """usd_spent <= cap_usd, and 0 at a price of 0."""
    manifest = files[paths.MANIFEST]
    spent = manifest["usd_spent"]
    most = manifest["cap_usd"] if manifest["price_usd_per_hour"] else 0
    if spent <= most:
        return []
    return [Problem(str(paths.MANIFEST), "$.usd_spent", f"{spent} is above {most}")]


def curve_ends_with_the_run(files: Files) -> list[Problem]:
    """The steps of curve.csv increase and end with the run's steps, tokens and loss."""
    rows, metrics = files[paths.CURVE], files[paths.METRICS]
    steps = [row["step"] for row in rows]
    for i in range(1, len(rows)):
        if steps[i] <= steps[i - 1]:
            reason = f"is {steps[i]}, not above the row before"
            return [Problem(str(paths.CURVE), f"$[{i}].step", reason)]
    last, where = rows[-1], f"$[{len(rows) - 1}]"
    expected = {"step": metrics["steps"], "tokens": metrics["D"]}
    problems = list(unequal(paths.CURVE, last, expected, str(paths.METRICS), where))
    loss, final = last["val_loss_nats"], metrics["val_loss_nats"]
    if loss is None or not close(loss, final, CURVE_PRECISION):
        reason = f"is {loss}, but {paths.METRICS} has {final}"
        problems.append(Problem(str(paths.CURVE), f"{where}.val_loss_nats", reason))
    return problems
