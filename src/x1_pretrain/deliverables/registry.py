"""Which file is checked with which schema: the list of everything a study hands over."""

from dataclasses import dataclass
from pathlib import Path

from x1_pretrain import paths
from x1_pretrain.errors import UserError


@dataclass(frozen=True)
class Deliverable:
    """`pattern` is a path, or a glob where a study has one file per model.

    `measured` files hold seconds, hosts and the like: checked, but never part of a hashed output.
    """

    pattern: str
    schema: str
    measured: bool = False
    optional: bool = False


def _one(path: Path, schema: str) -> Deliverable:
    return Deliverable(path.as_posix(), schema)


def _measured(name: str, schema: str) -> Deliverable:
    pattern = (paths.MEASURED / name).as_posix()
    return Deliverable(pattern, schema, measured=True, optional=True)


DELIVERABLES = (
    _one(paths.CURATION, "curation"),
    _one(paths.TOKENS_SUMMARY, "tokens"),
    _one(paths.METRICS, "metrics"),
    _one(paths.CURVE, "curve"),
    _one(paths.MANIFEST, "manifest"),
    _one(paths.SWEEP_RUNS / "*.json", "sweep-run"),
    _one(paths.SWEEP_CURVES / "*.csv", "curve"),
    _one(paths.RUNS_CSV, "runs"),
    _one(paths.FIT, "fit"),
    _one(paths.PREDICTION, "prediction"),
    _one(paths.PREDICTION_MD, "prediction-md"),
    _one(paths.SCORE, "score"),
    _one(paths.SPIKE, "spike"),
    _one(paths.POSTMORTEM, "spike-postmortem"),
    _one(paths.INFERENCE, "inference"),
    _one(paths.VALIDATION, "validation"),
    _measured("train.json", "measured-run"),
    _measured("sweep-*.json", "measured-run"),
    _measured("inference.json", "measured-inference"),
    _measured("spike.json", "measured-spike"),
)


def present(root: Path, measured: bool = False) -> list[tuple[Path, Deliverable]]:
    """The files of a study with their entries, as paths below `root`.

    A file that is not optional is listed even when it is missing, so that its absence is reported.
    """
    found: list[tuple[Path, Deliverable]] = []
    for entry in DELIVERABLES:
        if entry.measured and not measured:
            continue
        matches = sorted(path.relative_to(root) for path in root.glob(entry.pattern))
        if not matches and not entry.optional:
            matches = [Path(entry.pattern)]
        found += [(path, entry) for path in matches]
    return found


def entry_of(path: Path) -> Deliverable:
    """The entry of one file, given by its path below the root. Raises `UserError`."""
    for entry in DELIVERABLES:
        if path.match(entry.pattern):
            return entry
    valid = ", ".join(entry.pattern for entry in DELIVERABLES)
    raise UserError(f"{path}: not a deliverable of a study; those are {valid}")
