"""Are the files in measured/ of the runs whose deliverables lie beside them?

They hold seconds and hosts, so no stage has them as outputs and DVC neither restores nor removes them:
one may be left of another model, seed or study. Only commands check this, never a stage, because a
stage's hashed output must not depend on them.
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
    owner, where, key = _owner(path)
    if owner is None:
        return Problem(str(path), "$", "no stage writes this file; remove it")
    if not owner.is_file():
        return Problem(str(path), "$", f"belongs to {owner}, which is not here; remove it")
    try:
        found, expected = parse(path), parse(owner)
    except UserError:
        return None
    found, expected = _lookup(found, (key,)), _lookup(expected, (*where, key))
    if found is None or expected is None or found == expected:
        return None
    reason = (
        f"is {shortened(found)}, but {owner} has {shortened(expected)}: it was measured in another run; "
        "restore it from Git, or remove it"
    )
    return Problem(str(path), f"$.{key}", reason)


def _owner(path: Path) -> tuple[Path | None, tuple[str, ...], str]:
    """The deliverable that a measured file goes with, where in it the run is, and the key that names it."""
    name = path.stem
    if name == "train":
        return paths.MANIFEST, (), "run_id"
    if name == "spike":
        return paths.SPIKE, ("run",), "run_id"
    if name == "inference":
        return paths.INFERENCE, (), "model"
    if name.startswith(SWEEP_PREFIX):
        return paths.SWEEP_RUNS / f"{name.removeprefix(SWEEP_PREFIX)}.json", (), "run_id"
    return None, (), ""


def _lookup(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
