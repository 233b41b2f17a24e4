"""The stages as `dvc.yaml` plans them now, matrix and templates resolved by DVC itself."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from x1_pretrain.errors import UserError


@dataclass(frozen=True)
class PlannedStage:
    """A stage of dvc.yaml: `cached` outputs live in DVC's cache, `tracked` ones in Git."""

    name: str
    cmd: str
    deps: frozenset[str]
    cached: frozenset[str]
    tracked: frozenset[str]
    params: dict[str, tuple[str, ...]]

    @property
    def outs(self) -> frozenset[str]:
        return self.cached | self.tracked


@dataclass(frozen=True)
class Plan:
    """All stages by name, and whether DVC ignores a path (`.dvcignore`)."""

    stages: dict[str, PlannedStage]
    ignored: Callable[[Path], bool]


def read_plan() -> Plan:
    """The plan of the project in this directory. Raises `UserError` if DVC cannot load it."""
    from dvc.exceptions import DvcException  # here: half a second that no other command needs
    from dvc.repo import Repo

    try:
        repo = Repo()
        stages = {stage.name: _planned(stage) for stage in repo.stage.load_all()}
    except DvcException as error:
        raise UserError(f"dvc.yaml: DVC cannot load it ({' '.join(str(error).split())})") from error

    def ignored(path: Path) -> bool:
        return bool(repo.dvcignore.is_ignored(repo.fs, str(path.resolve())))

    return Plan(stages, ignored)


def _planned(stage) -> PlannedStage:  # type: ignore[no-untyped-def]  # dvc has no stable types
    from dvc.dependency.param import ParamsDependency

    params = [dep for dep in stage.deps if isinstance(dep, ParamsDependency)]
    return PlannedStage(
        name=stage.name,
        cmd=stage.cmd if isinstance(stage.cmd, str) else "\n".join(stage.cmd),
        deps=frozenset(d.def_path for d in stage.deps if not isinstance(d, ParamsDependency)),
        cached=frozenset(out.def_path for out in stage.outs if out.use_cache),
        tracked=frozenset(out.def_path for out in stage.outs if not out.use_cache),
        params={dep.def_path: tuple(dep.params) for dep in params},
    )
