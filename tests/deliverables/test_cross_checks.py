"""Each cross-check passes on a study that agrees with itself and fails on one number changed."""

import copy
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from x1_pretrain import paths
from x1_pretrain.deliverables import study_checks
from x1_pretrain.deliverables.cross_checks import CHECKS
from x1_pretrain.deliverables.files import sha256_of, write_text
from x1_pretrain.deliverables.parsed import Files
from x1_pretrain.errors import UserError
from x1_pretrain.shape import ModelShape
from x1_pretrain.study import Study, load_study

ROOT = Path(__file__).parents[2]
MODELS = ("A", "B", "C")
BRANCHES = (0.5, 1)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A study that agrees with itself, in memory, with the few files the checks read from disk."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / paths.PROFILES, paths.PROFILES)
    shutil.copy(ROOT / paths.PARAMS, paths.PARAMS)
    study = load_study()
    write_text(paths.RUNS_CSV, "the bytes of runs.csv\n")
    write_text(paths.POSTMORTEM, "# Spike\n\nThe loss rose at **step 1,301**.\n")
    write_text(paths.SPIKE_FIGURE, "a picture")
    write_text(paths.CHECKPOINT / "model.safetensors", "weights")
    weights = paths.CHECKPOINT / "model.safetensors"

    def tokens(model: str, branch: float) -> int:
        shape = study.shape_of(model)
        return round(branch * shape.flops / (6 * shape.N))

    def point(model: str, branch: float) -> dict:
        D = tokens(model, branch)
        C = 6.0 * study.shape_of(model).N * D
        return {"branch": branch, "D": D, "C_6nd": C, "val_loss_nats": 2.5 + branch}

    model = study.choice.model
    D = tokens(model, 1)
    metrics = {
        "model": model,
        "N": study.shape.N,
        "D": D,
        "steps": 2,
        "C_6nd": 6.0 * study.shape.N * D,
        "val_loss_nats": 2.5,
    }
    sweep = {
        paths.SWEEP_RUNS / f"{m}.json": {
            "model": m,
            "seed": 0,
            "N": study.shape_of(m).N,
            "points": [point(m, b) for b in BRANCHES],
        }
        for m in MODELS
    }
    rows = [
        {
            "run_id": f"{run['model']}-seed0-b{p['branch']}",
            **{key: run[key] for key in ("model", "seed", "N")},
            "branch": p["branch"],
            "D": p["D"],
            "C": p["C_6nd"],
            "val_loss": p["val_loss_nats"],
        }
        for run in sweep.values()
        for p in run["points"]
    ]
    loss = {"median": 2.4, "ci95": [2.3, 2.6], "mc_error": 0.1}
    runs_sha256 = sha256_of(paths.RUNS_CSV)
    values = {
        paths.METRICS: metrics,
        paths.CURVE: [
            {"step": 1, "tokens": D // 2, "val_loss_nats": None},
            {"step": 2, "tokens": D, "val_loss_nats": 2.5},
        ],
        paths.TOKENS_SUMMARY: {"data_sha256": "d" * 64, "tokenizer": "gpt2:1024"},
        paths.MANIFEST: {
            "profile": study.choice.profile,
            "model": model,
            "seed": study.choice.seed,
            "data": {"data_sha256": "d" * 64, "tokenizer": "gpt2:1024"},
            "checkpoint": {
                "file": weights.name,
                "sha256": sha256_of(weights),
                "bytes": weights.stat().st_size,
            },
            "usd_spent": 0.0,
            "cap_usd": 50.0,
            "price_usd_per_hour": 0.0,
            "results": copy.deepcopy(metrics),
        },
        **sweep,
        paths.RUNS_CSV: rows,
        paths.FIT: {"runs": {"n": len(rows), "sha256": runs_sha256}},
        paths.PREDICTION: {
            "runs_sha256": runs_sha256,
            "planned": [{"model": model, "N": study.shape.N, "D": D, "loss_nats": loss}],
        },
        paths.PREDICTION_MD: {"images": []},
        paths.SCORE: {
            "model": model,
            "observed": 2.5,
            "predicted": {"median": 2.4, "ci95": [2.3, 2.6]},
        },
        paths.SPIKE: {"detection": {"step": 1301}},
        paths.POSTMORTEM: {"images": ["spike.png"]},
        paths.INFERENCE: {
            "context_tokens": 256,
            "formats": [
                {
                    "format": "fp32",
                    "val_loss_nats": 2.5004,
                    "kv_cache_bytes_per_token": 64,
                    "kv_cache_bytes": 16384,
                },
                {
                    "format": "int8",
                    "val_loss_nats": 2.61,
                    "kv_cache_bytes_per_token": 32,
                    "kv_cache_bytes": 8192,
                },
            ],
        },
    }
    return Files(study, values)


def put(path: Path, *keys: str | int, value: object) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        inner = files[path]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def scale(path: Path, *keys: str | int, by: float) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        inner = files[path]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] *= by

    return change


SPOILED = [
    ("manifest_is_of_the_selected_run", put(paths.MANIFEST, "seed", value=1), "$.seed: is 1"),
    ("manifest_is_of_the_selected_run", put(paths.MANIFEST, "model", value="C"), "$.model: is 'C'"),
    (
        "manifest_has_the_metrics",
        put(paths.MANIFEST, "results", "val_loss_nats", value=2.4),
        "$.results.val_loss_nats: is 2.4, but",
    ),
    (
        "manifest_has_the_tokens",
        put(paths.MANIFEST, "data", "data_sha256", value="e" * 64),
        "$.data.data_sha256: is 'eee",
    ),
    (
        "checkpoint_is_the_manifests",
        put(paths.MANIFEST, "checkpoint", "sha256", value="0" * 64),
        "$.checkpoint.sha256: is '000",
    ),
    (
        "checkpoint_is_the_manifests",
        put(paths.MANIFEST, "checkpoint", "file", value="weights.safetensors"),
        "weights.safetensors is not in the checkpoint",
    ),
    ("spending_is_within_the_cap", put(paths.MANIFEST, "usd_spent", value=0.5), "0.5 is above 0"),
    (
        "curve_ends_with_the_run",
        put(paths.CURVE, 1, "val_loss_nats", value=2.6),
        "$[1].val_loss_nats",
    ),
    ("curve_ends_with_the_run", put(paths.CURVE, 0, "step", value=2), "$[1].step: is 2, not above"),
    ("curve_ends_with_the_run", put(paths.METRICS, "steps", value=3), "$[1].step: is 2"),
    ("N_is_the_profiles", put(paths.RUNS_CSV, 5, "N", value=7), "$[5].N: is 7, but the shape of C"),
    ("N_is_the_profiles", put(paths.METRICS, "N", value=7), "metrics.json: $.N: is 7"),
    ("N_is_the_profiles", put(paths.SWEEP_RUNS / "B.json", "N", value=7), "B.json: $.N: is 7"),
    ("C_is_6ND", scale(paths.METRICS, "C_6nd", by=1.02), "metrics.json: $.C_6nd"),
    ("C_is_6ND", scale(paths.RUNS_CSV, 2, "C", by=0.98), "runs.csv: $[2].C"),
    (
        "C_is_6ND",
        scale(paths.SWEEP_RUNS / "A.json", "points", 1, "C_6nd", by=6.0),
        "A.json: $.points[1].C_6nd",
    ),
    ("isoflop_runs_have_one_budget", scale(paths.RUNS_CSV, 3, "C", by=1.03), "$[3].C"),
    (
        "runs_csv_is_the_sweep",
        put(paths.RUNS_CSV, 0, "val_loss", value=9.0),
        "$[0]: D and val_loss",
    ),
    (
        "runs_csv_is_the_sweep",
        lambda files: files[paths.RUNS_CSV].pop(),
        "lacks model C, seed 0, branch 1",
    ),
    (
        "fit_and_prediction_are_of_these_runs",
        put(paths.FIT, "runs", "n", value=3),
        "$.runs.n: is 3",
    ),
    (
        "fit_and_prediction_are_of_these_runs",
        lambda files: write_text(paths.RUNS_CSV, "other bytes\n"),
        "prediction.json: $.runs_sha256",
    ),
    (
        "prediction_is_of_the_run",
        put(paths.PREDICTION, "planned", 0, "N", value=9),
        "$.planned[0].N",
    ),
    ("prediction_is_of_the_run", put(paths.PREDICTION, "planned", value=[]), "lacks model X1"),
    ("score_compares_prediction_and_run", put(paths.SCORE, "observed", value=2.4), "$.observed"),
    (
        "score_compares_prediction_and_run",
        put(paths.SCORE, "predicted", "ci95", 0, value=2.0),
        "$.predicted",
    ),
    (
        "inference_in_fp32_is_the_run",
        put(paths.INFERENCE, "formats", 0, "val_loss_nats", value=2.5 * 1.006),
        "$.formats[0].val_loss_nats: is 2.515",
    ),
    (
        "inference_in_fp32_is_the_run",
        put(paths.INFERENCE, "formats", 0, "val_loss_nats", value=2.5 * 0.994),
        "$.formats[0].val_loss_nats: is 2.485",
    ),
    (
        "kv_cache_is_as_large_as_the_formula_says",
        put(paths.INFERENCE, "formats", 1, "kv_cache_bytes", value=16384),
        "$.formats[1].kv_cache_bytes: is 16384, but 256 tokens of 32 bytes are 8192",
    ),
    (
        "postmortem_names_the_step",
        put(paths.SPIKE, "detection", "step", value=130),
        "does not name step 130",
    ),
    (
        "pictures_of_documents_exist",
        put(paths.POSTMORTEM, "images", value=["spikes.png"]),
        "$.images[0]: spikes.png is not a file",
    ),
]


def test_a_study_that_agrees_with_itself_passes(files: Files):
    assert {check.__name__: check(files) for check in CHECKS} == {c.__name__: [] for c in CHECKS}


@pytest.mark.parametrize(("name", "spoil", "line"), SPOILED, ids=[s[0] + s[2] for s in SPOILED])
def test_one_changed_number_is_named(files: Files, name: str, spoil: Callable[[Files], object], line: str):
    spoil(files)
    (check,) = [check for check in CHECKS if check.__name__ == name]
    assert any(line in str(problem) for problem in check(files))


def test_every_check_has_a_study_that_fails_it():
    assert {name for name, _, _ in SPOILED} == {check.__name__ for check in CHECKS}


@pytest.mark.parametrize("factor", [0.9992, 1.0008])
def test_a_loss_under_autocast_may_differ_by_its_rounding(files: Files, factor: float):
    put(paths.INFERENCE, "formats", 0, "val_loss_nats", value=2.5 * factor)(files)
    (check,) = [check for check in CHECKS if check.__name__ == "inference_in_fp32_is_the_run"]
    assert check(files) == []


def test_N_and_the_budget_are_judged_by_the_recipes_own_block(files: Files):
    """SwiGLU at d_model 16 has 4% fewer weights than the block that the tokens are planned with."""
    recipe = dataclasses.replace(files.study.choice.recipe, activation="swiglu")
    choice = dataclasses.replace(files.study.choice, recipe=recipe)
    shape = ModelShape(n_layer=2, d_model=16, n_head=1, n_kv_head=1, flops=1e9)
    profile = dataclasses.replace(files.study.profile, models=dict.fromkeys("ABC", shape) | {"X1": shape})
    study = Study(choice, profile)
    N, D = shape.N_of("swiglu"), round(shape.flops / (6 * shape.N))
    assert N < 0.97 * shape.N
    row = {"model": "A", "N": N, "branch": 1, "D": D, "C": 6.0 * N * D}
    values = {paths.METRICS: {"model": "X1", "N": N}, paths.RUNS_CSV: [row]}
    swiglu = Files(study, values)
    assert study_checks.N_is_the_profiles(swiglu) == []
    assert study_checks.isoflop_runs_have_one_budget(swiglu) == []
    row["C"] *= 1.03
    assert [p.path for p in study_checks.isoflop_runs_have_one_budget(swiglu)] == ["$[0].C"]
    row["N"] = shape.N
    assert [p.path for p in study_checks.N_is_the_profiles(swiglu)] == ["$[0].N"]


def test_an_absent_checkpoint_is_skipped_not_passed(files: Files):
    shutil.rmtree(paths.CHECKPOINT)
    (check,) = [check for check in CHECKS if check.__name__ == "checkpoint_is_the_manifests"]
    assert check(files) is None


def test_an_absent_file_is_named(files: Files):
    del files.values[paths.SCORE]
    with pytest.raises(UserError, match=r"score\.json: no such file"):
        for check in CHECKS:
            check(files)
