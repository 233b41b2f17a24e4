"""The parsed deliverables of a study, and the comparisons its cross-checks are made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from x1_pretrain import paths
from x1_pretrain.deliverables.problems import Problem, shortened
from x1_pretrain.errors import UserError
from x1_pretrain.study import Study


@dataclass(frozen=True)
class Files:
    """The configuration and the parsed deliverables by their path."""

    study: Study
    values: dict[Path, Any]

    def __getitem__(self, path: Path) -> Any:
        if path not in self.values:
            raise UserError(f"{path}: no such file; the stage that makes it has not run")
        return self.values[path]

    def sweep_runs(self) -> dict[Path, Any]:
        """The files of the chosen models; one of an earlier choice may lie beside them."""
        chosen = self.study.choice.sweep.models
        runs = {p: v for p, v in self.values.items() if p.match(f"{paths.SWEEP_RUNS}/*.json")}
        return {path: run for path, run in runs.items() if run["model"] in chosen}


def unequal(
    path: Path, values: dict[str, Any], expected: dict[str, Any], source: str, where: str = "$"
) -> Iterator[Problem]:
    for key, value in expected.items():
        if values.get(key) != value:
            found = shortened(values.get(key))
            reason = f"is {found}, but {source} has {shortened(value)}"
            yield Problem(str(path), f"{where}.{key}", reason)


def close(value: float, reference: float, tolerance: float) -> bool:
    return abs(value - reference) <= tolerance * abs(reference)
