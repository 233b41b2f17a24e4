"""The command as the lab writes it, and the stages, as processes and in order."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from tests.conftest import RECIPE
from tests.scaling.conftest import TINY_LAW
from x1_pretrain.deliverables.markdown import parse_markdown
from x1_pretrain.run_spec import planned_tokens
from x1_pretrain.study import load_profile

REPOSITORY = Path(__file__).parents[2]
SCHEMAS = REPOSITORY / "schemas"
THREE = """run_id,N,D,val_loss,dollars_spent
A,5e6,4.5e9,4.648,0.7
B,25e6,0.9e9,4.208,0.7
C,100e6,0.225e9,4.348,0.7
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY / "src")}


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True
    )


def problems(value: object, schema: str) -> list[str]:
    content = json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
    Draft202012Validator.check_schema(content)
    return [error.message for error in Draft202012Validator(content).iter_errors(value)]


def test_the_labs_command_on_three_rows(tmp_path: Path):
    (tmp_path / "runs.csv").write_text(THREE)
    command = ("-m", "x1_pretrain.fit_scaling_law", "--input", "runs.csv", "--output", "fit.json")
    done = python(*command, "--bootstrap", "1000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "identified: no" in done.stdout and "bootstrap refused: 3 distinct points" in done.stdout
    content = json.loads((tmp_path / "fit.json").read_text())
    assert problems(content, "fit") == []
    assert (tmp_path / "iso-flop.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ("A,1e6,1e9,3\nA,2e6,1e9,2.9\nC,3e6,1e9,2.8", (), "run_id 'A' stands 2 times"),
        ("A,1e6,1,3\nB,2e6,1,2.9\nC,3e6,1,2.8", (), "looks like millions or billions"),
        ("A,1e6,1e9,3\nB,2e6,1e9,2.9\nC,3e6,1e9,2.8", ("--bootstrap", "-1"), "--bootstrap: -1"),
        ("A,1e6,1e9,3\nB,2e6,1e9,2.9\nC,3e6,1e9,2.8", ("--prior", "no.json"), "no.json: no such file"),
        ("A,1e6,1e9,3\nB,2e6,1e9,2.9", (), "2 distinct (N, D) in 2 rows"),
        ("A,1e6,1e9,3\nB,1e6,1e9,3\nC,1e6,1e9,3", (), "1 distinct (N, D) in 3 rows"),
        ("A,1e6,1e9,nan\nB,2e6,1e9,2.9\nC,3e6,1e9,2.8", (), "'A' has val_loss nan"),
        ("A,1e6,1e9,3\nB,2e6,1e9,-2.9\nC,3e6,1e9,2.8", (), "'B' has val_loss -2.9"),
        ("A,1e6,1e9,3\nB,2e6,1e9,2.9\nC,3e6,1e9,2.8", ("--curves", "here"), "give runs.csv the column model"),
        (
            "A,1e6,1e9,3\nB,2e6,1e9,2.9\nC,3e6,1e9,2.8",
            ("--method", "curve_fit"),
            "--method curve_fit: 3 distinct points for five parameters",
        ),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(tmp_path: Path, rows, options, says):
    (tmp_path / "runs.csv").write_text(f"run_id,N,D,val_loss\n{rows}\n")
    command = ("-m", "x1_pretrain.fit_scaling_law", "--input", "runs.csv", "--output", "fit.json")
    done = python(*command, *options, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and says in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "fit.json").exists()


def test_curve_fit_is_had_where_the_runs_allow_it(tmp_path: Path, tiny_runs):
    runs = tiny_runs()
    columns = zip(runs.run_id, runs.N, runs.D, runs.loss_nats, strict=True)
    rows = "\n".join(f"{name},{n},{d},{loss}" for name, n, d, loss in columns)
    (tmp_path / "runs.csv").write_text(f"run_id,N,D,val_loss\n{rows}\n")
    command = ("-m", "x1_pretrain.fit_scaling_law", "--input", "runs.csv", "--output", "fit.json")
    options = ("--method", "curve_fit", "--bootstrap", "0", "--draws", "600", "--no-figure")
    done = python(*command, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "fit.json").read_text())
    assert problems(content, "fit") == [] and content["point_is"] == "curve_fit"
    (row,) = [r for r in content["side_by_side"]["methods"] if r["method"] == "curve_fit"]
    beta, alpha = content["beta"]["point"], content["alpha"]["point"]
    assert row["a"] == pytest.approx(beta / (alpha + beta))


def test_neither_torch_nor_scipy_is_imported_to_start(tmp_path: Path):
    heavy = ("torch", "scipy", "matplotlib")
    code = f"import sys, x1_pretrain.fit_scaling_law; print([m for m in {heavy} if m in sys.modules])"
    assert python("-c", code, cwd=tmp_path).stdout == "[]\n"


def test_the_stages_make_valid_deliverables(tmp_path: Path, tiny_runs):
    (tmp_path / "experiments").mkdir()
    shutil.copytree(REPOSITORY / "experiments/profiles", tmp_path / "experiments/profiles")
    tiny = tmp_path / "experiments/profiles/tiny.yaml"
    tiny.write_text(tiny.read_text().replace("draws: 6000", "draws: 800"))
    shutil.copy(REPOSITORY / "params.yaml", tmp_path)
    params = tmp_path / "params.yaml"
    params.write_text(params.read_text().replace("profile: smoke", "profile: tiny"))
    X1 = tmp_path / "experiments/X1-pretraining"
    folder = X1 / "scaling-law"
    write_sweep(folder / "runs", tiny_runs())
    write_curves(folder / "curves", tiny_runs())
    (X1 / "run-cloud").mkdir()
    profile = load_profile(tiny)
    shape = profile.models["X1"]
    D = planned_tokens(shape, profile.train, RECIPE)
    metrics = {"model": "X1", "N": shape.N, "D": D, "val_loss_nats": 2.3}
    (X1 / "run-cloud/metrics.json").write_text(json.dumps(metrics))
    for stage in ("collect", "fit", "iso_flop", "predict", "score"):
        done = python(str(REPOSITORY / f"stages/{stage}.py"), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    fitted = json.loads((folder / "fit.json").read_text())
    assert len(fitted["sensitivity"]["rows"]) == 16
    assert "passes to a larger size" in fitted["side_by_side"]["methods"][0]["reason"]
    for name in ("fit", "prediction", "score"):
        assert problems(json.loads((folder / f"{name}.json").read_text()), name) == []
    parsed = parse_markdown((folder / "prediction.md").read_text())
    assert problems(parsed, "prediction-md") == []
    whole = ("seed", "N", "N_total", "D")
    with (folder / "runs.csv").open(newline="") as stream:
        rows = [
            {k: v if k in ("run_id", "model") else int(v) if k in whole else float(v) for k, v in r.items()}
            for r in csv.DictReader(stream)
        ]
    assert problems(rows, "runs") == []
    for model in "ABC":
        assert problems(json.loads((folder / f"runs/{model}.json").read_text()), "sweep-run") == []


def write_curves(folder: Path, runs) -> None:
    folder.mkdir()
    for model, last in zip("ABC", (3, 7, 11), strict=True):
        D = np.linspace(4096, runs.D[last], 200)
        loss = TINY_LAW.loss(runs.N[last], D)
        rows = "".join(f"{d:.0f},{value}\n" for d, value in zip(D, loss, strict=True))
        (folder / f"{model}.csv").write_text(f"tokens,train_loss_nats\n{rows}")


def write_sweep(folder: Path, runs) -> None:
    folder.mkdir(parents=True)
    for model, rows in zip("ABC", (range(0, 4), range(4, 8), range(8, 12)), strict=True):
        points = [
            {
                "branch": float(runs.branch[i]),
                "steps": int(runs.D[i]) // 4096,
                "D": int(runs.D[i]),
                "C_6nd": float(runs.C[i]),
                "C_counted": float(2 * runs.C[i]),
                "val_loss_nats": float(runs.loss_nats[i]),
                "val_bits_per_byte": float(runs.loss_nats[i] / 1.6),
                "usd_spent": 0.0,
            }
            for i in rows
        ]
        N = int(runs.N[rows[0]])
        content = {
            "run_id": f"{model}-seed0", "model": model, "seed": 0, "n_layer": 2, "d_model": 48,
            "N": N, "N_total": 2 * N, "points": points, "replicates": [],
        }  # fmt: skip
        (folder / f"{model}.json").write_text(json.dumps(content))
