"""Are the files in measured/ of the runs whose deliverables lie beside them?

They hold seconds and hosts, so no stage has them as outputs and DVC neither restores nor removes them:
one may be left of another model, seed or study, or of the last run trained where DVC restored an earlier
one from its run-cache. Only commands check this, never a stage, because a stage's hashed output must not
depend on them.
"""

from pathlib import Path
from typing import Any

from x1_pretrain import paths
from x1_pretrain.deliverables.problems import Problem, shortened
from x1_pretrain.deliverables.schemas import parse
from x1_pretrain.errors import UserError

SWEEP_PREFIX = "sweep-"


def measured_problems(folder: Path = paths.MEASURED) -> list[Problem]:
    """Every measured file that belongs to no deliverable, or to another run than its deliverable's.

    A file that cannot be parsed is left to the schemas.
    """
    return [problem for path in sorted(folder.glob("*.json")) if (problem := _problem(path))]


def _problem(path: Path) -> Problem | None:
    owner, where, keys = _owner(path)
    if owner is None:
        return Problem(str(path), "$", "no stage writes this file; remove it")
    if not owner.is_file():
        return Problem(str(path), "$", f"belongs to {owner}, which is not here; remove it")
    try:
        found, expected = parse(path), parse(owner)
    except UserError:
        return None
    for key in keys:
        measured, delivered = _lookup(found, (key,)), _lookup(expected, (*where, key))
        if None not in (measured, delivered) and measured != delivered:
            reason = (
                f"is {shortened(measured)}, but {owner} has {shortened(delivered)}: it was measured in "
                "another run; restore it from Git, or remove it"
            )
            return Problem(str(path), f"$.{key}", reason)
    return None


def _owner(path: Path) -> tuple[Path | None, tuple[str, ...], tuple[str, ...]]:
    """The deliverable a measured file goes with, where in it the run is, and the keys that identify it.

    A run's id is that of its model and seed; only the fingerprint tells two of one id apart.
    """
    name = path.stem
    if name == "train":
        return paths.MANIFEST, (), ("run_id", "fingerprint")
    if name == "spike":
        return paths.SPIKE, ("run",), ("run_id",)
    if name == "inference":
        return paths.INFERENCE, (), ("model",)
    if name.startswith(SWEEP_PREFIX):
        return paths.SWEEP_RUNS / f"{name.removeprefix(SWEEP_PREFIX)}.json", (), ("run_id", "fingerprint")
    return None, (), ()


def _lookup(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
