"""Where things are, relative to the root of the project. The same names stand in dvc.yaml."""

import os
from pathlib import Path

PARAMS = Path("params.yaml")
PROFILES = Path("experiments/profiles")

CHECKED = Path("data/checked.txt")
RAW = Path("data/raw")
DOCUMENTS = Path("data/documents")
CURATION = Path("data/curation.json")
TOKENS = Path("data/tokens")
TOKENS_SUMMARY = Path("data/tokens.json")
SWEEP = Path("data/sweep")
SPIKE_INCIDENT = Path("data/spike")

X1 = Path("experiments/X1-pretraining")
RUN = X1 / "run-cloud"
CHECKPOINT = RUN / "checkpoint"
METRICS = RUN / "metrics.json"
CURVE = RUN / "curve.csv"
MANIFEST = RUN / "manifest.json"
LOSS_CURVE = RUN / "loss-curve.png"

SCALING = X1 / "scaling-law"
SWEEP_RUNS = SCALING / "runs"
SWEEP_CURVES = SCALING / "curves"
RUNS_CSV = SCALING / "runs.csv"
FIT = SCALING / "fit.json"
ISO_FLOP = SCALING / "iso-flop.png"
PREDICTION = SCALING / "prediction.json"
PREDICTION_MD = SCALING / "prediction.md"
SCORE = SCALING / "score.json"

SPIKE = X1 / "spike.json"
SPIKE_FIGURE = X1 / "spike.png"
POSTMORTEM = X1 / "spike-postmortem.md"
INFERENCE = X1 / "inference/inference.json"
VALIDATION = X1 / "validation.json"
MEASURED = X1 / "measured"
REPORT = X1 / "report.html"
SCHEMAS = Path("schemas")


def wheel_path(package: str, version: str, raw_dir: Path) -> Path:
    """The stable name of a fetched wheel, whatever tags its own file name has."""
    return raw_dir / f"{package}-{version}.whl"


def project_root() -> Path:
    """The root of the real project, also from inside a copy that `dvc exp run --temp` or a queue works in.

    DVC makes such copies in `.dvc/tmp/exps` of the original. (Its cache would not tell: many projects may
    share one.)
    """
    here = Path.cwd()
    for folder in here.parents:
        if folder.parts[-3:] == (".dvc", "tmp", "exps"):
            return folder.parents[2]
    return here


def scratch_root() -> Path:
    """Where resumable state lives: `.scratch` of the real project, or `X1_SCRATCH`."""
    return Path(os.environ.get("X1_SCRATCH") or project_root() / ".scratch")


def ledger() -> Path:
    """What the project spent: one file for all stages, runs and experiments."""
    return scratch_root() / "ledger.jsonl"
