"""Cross-checks of the sweep, the law fitted to it, the incident and the quantised model."""

import re

from x1_pretrain import paths
from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.deliverables.parsed import Files, close, unequal
from x1_pretrain.deliverables.problems import Problem

C_TOLERANCE = 0.01  # C = 6ND; D is a whole number of steps
ISOFLOP_TOLERANCE = 0.02
# The fp32 row is eager fp32; the run may have evaluated under bf16 autocast. bf16 has 8 significant bits, so
# operands are off by up to 2^-9 = 0.2% each; the loss is a mean over tokens, which averages most of that out
# (measured on CPU at N = 786k: 6e-6 of the loss). 0.1% leaves room for other kernels and larger models; that
# it is the same checkpoint is for its sha256 to tell, here a wrong conversion or validation range shows.
LOSS_TOLERANCE = 0.001
FLOPS_PER_PARAMETER_TOKEN = 6


def N_is_the_profiles(files: Files) -> list[Problem]:  # N is the field's name
    """N in metrics.json, the sweep's files and runs.csv is what the profile's shape gives."""
    metrics = files[paths.METRICS]
    places = [(paths.METRICS, "$", metrics)]
    places += [(path, "$", run) for path, run in files.sweep_runs().items()]
    places += [(paths.RUNS_CSV, f"$[{i}]", row) for i, row in enumerate(files[paths.RUNS_CSV])]
    problems = []
    for path, where, values in places:
        N = files.study.shape_of(values["model"]).N_of(files.study.choice.recipe.activation)
        source = f"the shape of {values['model']} in the profile"
        problems += unequal(path, values, {"N": N}, source, where)
    return problems


def C_is_6ND(files: Files) -> list[Problem]:
    """C = 6ND within 1% in metrics.json, the sweep's files and runs.csv."""
    metrics = files[paths.METRICS]
    places = [(paths.METRICS, "$.C_6nd", metrics["N"], metrics["D"], metrics["C_6nd"])]
    for path, run in files.sweep_runs().items():
        for i, point in enumerate(run["points"]):
            places.append((path, f"$.points[{i}].C_6nd", run["N"], point["D"], point["C_6nd"]))
    for i, row in enumerate(files[paths.RUNS_CSV]):
        places.append((paths.RUNS_CSV, f"$[{i}].C", row["N"], row["D"], row["C"]))
    return [
        Problem(str(path), where, f"{C:g} is not 6ND = {FLOPS_PER_PARAMETER_TOKEN * N * D:g}")
        for path, where, N, D, C in places
        if not close(C, FLOPS_PER_PARAMETER_TOKEN * N * D, C_TOLERANCE)
    ]


def isoflop_runs_have_one_budget(files: Files) -> list[Problem]:
    """The full runs of the sweep cost the profile's flops within 2%, at the N that planned their tokens."""
    problems = []
    for i, row in enumerate(files[paths.RUNS_CSV]):
        shape = files.study.shape_of(row["model"])
        # SwiGLU's N is a few percent off the plan's at small widths; the tokens stay those of the plan.
        C, flops = row["C"] * shape.N / row["N"], shape.flops
        if row["branch"] == 1 and not close(C, flops, ISOFLOP_TOLERANCE):
            reason = f"{row['C']:g} is not the {flops:g} flops of {row['model']} in the profile"
            problems.append(Problem(str(paths.RUNS_CSV), f"$[{i}].C", reason))
    return problems


def runs_csv_is_the_sweep(files: Files) -> list[Problem]:
    """runs.csv has each point of the sweep once, with its tokens and its loss."""
    expected = {}
    for run in files.sweep_runs().values():
        for seeded in (run, *run.get("replicates", ())):
            for point in seeded["points"]:
                key = (run["model"], seeded["seed"], point["branch"])
                expected[key] = (point["D"], point["val_loss_nats"])
    problems = []
    for i, row in enumerate(files[paths.RUNS_CSV]):
        key = (row["model"], row["seed"], row["branch"])
        if expected.pop(key, None) != (row["D"], row["val_loss"]):
            reason = f"D and val_loss of {row['run_id']} are not those of a point of the sweep"
            problems.append(Problem(str(paths.RUNS_CSV), f"$[{i}]", reason))
    for model, seed, branch in expected:
        reason = f"lacks model {model}, seed {seed}, branch {branch}, which the sweep has"
        problems.append(Problem(str(paths.RUNS_CSV), "$", reason))
    return problems


def fit_and_prediction_are_of_these_runs(files: Files) -> list[Problem]:
    """fit.json counts the rows of runs.csv; it and prediction.json have the file's hash."""
    runs = {"n": len(files[paths.RUNS_CSV]), "sha256": sha256_of(paths.RUNS_CSV)}
    prediction = {"runs_sha256": runs["sha256"]}
    return [
        *unequal(paths.FIT, files[paths.FIT]["runs"], runs, str(paths.RUNS_CSV), "$.runs"),
        *unequal(paths.PREDICTION, files[paths.PREDICTION], prediction, str(paths.RUNS_CSV)),
    ]


def prediction_is_of_the_run(files: Files) -> list[Problem]:
    """prediction.json planned the N and D that the selected run has."""
    metrics = files[paths.METRICS]
    expected = {"N": metrics["N"], "D": metrics["D"]}
    for i, run in enumerate(files[paths.PREDICTION]["planned"]):
        if run["model"] == metrics["model"]:
            where = f"$.planned[{i}]"
            return list(unequal(paths.PREDICTION, run, expected, str(paths.METRICS), where))
    reason = f"lacks model {metrics['model']}, which was trained"
    return [Problem(str(paths.PREDICTION), "$.planned", reason)]


def score_compares_prediction_and_run(files: Files) -> list[Problem]:
    """score.json holds the run's loss and what was predicted for it."""
    metrics, score = files[paths.METRICS], files[paths.SCORE]
    observed = {"model": metrics["model"], "observed": metrics["val_loss_nats"]}
    problems = list(unequal(paths.SCORE, score, observed, str(paths.METRICS)))
    for run in files[paths.PREDICTION]["planned"]:
        if run["model"] == score["model"]:
            loss = {key: run["loss_nats"][key] for key in ("median", "ci95")}
            expected = {"predicted": loss}
            problems += unequal(paths.SCORE, score, expected, str(paths.PREDICTION))
    return problems


def inference_in_fp32_is_the_run(files: Files) -> list[Problem]:
    """The fp32 loss of inference.json is metrics.json's within 0.1% of it."""
    loss = files[paths.METRICS]["val_loss_nats"]
    return [
        Problem(
            str(paths.INFERENCE),
            f"$.formats[{i}].val_loss_nats",
            f"is {row['val_loss_nats']}, but {paths.METRICS} has {loss}",
        )
        for i, row in enumerate(files[paths.INFERENCE]["formats"])
        if row["format"] == "fp32" and not close(row["val_loss_nats"], loss, LOSS_TOLERANCE)
    ]


def kv_cache_is_as_large_as_the_formula_says(files: Files) -> list[Problem]:
    """What the cache of a whole context occupies is bytes per token times tokens."""
    inference = files[paths.INFERENCE]
    tokens = inference["context_tokens"]
    return [
        Problem(
            str(paths.INFERENCE),
            f"$.formats[{i}].kv_cache_bytes",
            f"is {row['kv_cache_bytes']}, but {tokens} tokens of {row['kv_cache_bytes_per_token']} bytes are "
            f"{tokens * row['kv_cache_bytes_per_token']}",
        )
        for i, row in enumerate(inference["formats"])
        if row["kv_cache_bytes"] != tokens * row["kv_cache_bytes_per_token"]
    ]


def postmortem_names_the_step(files: Files) -> list[Problem]:
    """The document names the step at which spike.json saw the spike."""
    step = files[paths.SPIKE]["detection"]["step"]
    text = paths.POSTMORTEM.read_text(encoding="utf-8")
    if re.search(rf"\bsteps? \**({step}|{step:,})\b", text, flags=re.IGNORECASE):
        return []
    reason = f"does not name step {step}, at which {paths.SPIKE} has the spike"
    return [Problem(str(paths.POSTMORTEM), "$", reason)]


def pictures_of_documents_exist(files: Files) -> list[Problem]:
    """Every image a Markdown deliverable shows is a file beside it."""
    return [
        Problem(str(path), f"$.images[{i}]", f"{image} is not a file")
        for path in (paths.PREDICTION_MD, paths.POSTMORTEM)
        for i, image in enumerate(files[path]["images"])
        if not (path.parent / image).is_file()
    ]
