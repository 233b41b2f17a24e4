"""`python -m x1_pretrain.deliverables.verify`: is what is committed what `dvc.lock` says was made?

Runs no stage. Every output in Git, every cached output that is on this machine, every source file
and parameter a stage depended on is compared with the lock, every deliverable with its schema, and
every measured file with the run it should be of.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json
from x1_pretrain.deliverables.lockfile import LOCK, Entry, LockedStage, difference, read_lock
from x1_pretrain.deliverables.measured_checks import measured_problems
from x1_pretrain.deliverables.plan import Plan, PlannedStage, read_plan
from x1_pretrain.deliverables.problems import InvalidDeliverablesError, Problem, shortened
from x1_pretrain.deliverables.validate import schema_problems, validate
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.typed_yaml import read_yaml


@dataclass(frozen=True)
class Verification:
    """`verified` outputs were compared; `absent` ones are cached elsewhere and could not be."""

    problems: tuple[Problem, ...]
    verified: int
    absent: int


def verify_lock() -> Verification:
    """Compare the project in the current directory with its lock. Raises `UserError`."""
    lock, plan = read_lock(), read_plan()
    problems = list(stage_problems(lock, plan))
    verified = absent = 0
    for name, stage in lock.items():
        planned = plan.stages.get(name)
        for out in stage.outs:
            cached = planned is not None and out.path in planned.cached
            if not Path(out.path).exists():
                absent += cached
                if not cached:
                    problems.append(Problem(out.path, "$", f"is missing; stage {name} made it"))
                continue
            verified += 1
            change = difference(out, plan.ignored)
            if change:
                problems.append(Problem(out.path, "$", f"is not what stage {name} made: {change}"))
    problems += dependency_problems(lock, plan)
    problems += param_problems(lock)
    return Verification(tuple(problems), verified, absent)


def stage_problems(lock: dict[str, LockedStage], plan: Plan) -> Iterator[Problem]:
    """Stages, commands, and lists of files and parameters that differ between lock and dvc.yaml."""
    for name in sorted(lock.keys() - plan.stages.keys()):
        yield Problem(str(LOCK), f"$.stages.{name}", "no such stage in dvc.yaml; remove its entry")
    for name, planned in plan.stages.items():
        where = f"$.stages.{name}"
        stage = lock.get(name)
        if stage is None:
            yield Problem(str(LOCK), where, "stage of dvc.yaml that never ran; `dvc repro`")
            continue
        if stage.cmd != planned.cmd:
            reason = f"ran as {shortened(stage.cmd)}, dvc.yaml says {shortened(planned.cmd)}"
            yield Problem(str(LOCK), f"{where}.cmd", reason)
        yield from _set_problems(f"{where}.deps", {d.path for d in stage.deps}, set(planned.deps))
        yield from _set_problems(f"{where}.outs", {o.path for o in stage.outs}, set(planned.outs))
        yield from _set_problems(f"{where}.params", _locked_keys(stage), _planned_keys(planned))


def dependency_problems(lock: dict[str, LockedStage], plan: Plan) -> list[Problem]:
    """Inputs that changed after the stages that read them ran, one problem for each file."""
    made = {out.path: (out, name) for name, stage in lock.items() for out in stage.outs}
    cached = {path for stage in plan.stages.values() for path in stage.cached}
    readers: dict[Entry, list[str]] = defaultdict(list)
    for name, stage in lock.items():
        for dep in stage.deps:
            readers[dep].append(name)
    problems = []
    for dep, names in readers.items():
        stages = ", ".join(names)
        if dep.path in made:
            out, maker = made[dep.path]
            if out.md5 != dep.md5:
                reason = f"has {out.md5} as output of {maker}, {dep.md5} as input of {stages}"
                problems.append(Problem(str(LOCK), dep.path, f"{reason}: no run made this lock"))
        elif not Path(dep.path).exists():
            if not cached & {parent.as_posix() for parent in Path(dep.path).parents}:
                problems.append(Problem(dep.path, "$", f"is missing; {stages} read it"))
        elif change := difference(dep, plan.ignored):
            reason = f"changed since {stages} ran, `dvc repro` or restore it: {change}"
            problems.append(Problem(dep.path, "$", reason))
    return problems


def param_problems(lock: dict[str, LockedStage]) -> list[Problem]:
    """Parameters whose value now is not the one a stage ran with, one problem for each key."""
    stages: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, stage in lock.items():
        for file, keys in stage.params.items():
            if not Path(file).is_file():
                stages[file, "$", "is missing"].append(name)
                continue
            content = read_yaml(Path(file))
            for key, locked in keys.items():
                for where, old, new in differences(locked, _lookup(content, key), key):
                    reason = f"is {shortened(new)}, in dvc.lock {shortened(old)}"
                    stages[file, f"$.{where}", reason].append(name)
    return [
        Problem(file, where, f"{reason}, for {', '.join(names)}; `dvc repro` or restore it")
        for (file, where, reason), names in stages.items()
    ]


def differences(old: Any, new: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """The leaves at which two nested values differ: their key, the old value and the new one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from differences(old.get(name), new.get(name), f"{key}.{name}")
    elif old != new:
        yield key, old, new


def _lookup(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content


def _set_problems(where: str, locked: set[str], planned: set[str]) -> Iterator[Problem]:
    for path in sorted(planned - locked):
        yield Problem(str(LOCK), where, f"lacks {path}, which dvc.yaml lists; `dvc repro`")
    for path in sorted(locked - planned):
        yield Problem(str(LOCK), where, f"has {path}, which dvc.yaml does not list; `dvc repro`")


def _locked_keys(stage: LockedStage) -> set[str]:
    return {f"{file}:{key}" for file, keys in stage.params.items() for key in keys}


def _planned_keys(stage: PlannedStage) -> set[str]:
    return {f"{file}:{key}" for file, keys in stage.params.items() for key in keys}


def validation_problems() -> list[Problem]:
    """The cross-checks once more, and each file against its hash in validation.json.

    So a value edited together with its hash in dvc.lock is still found.
    """
    try:
        outcome = validate()
    except InvalidDeliverablesError as error:
        return list(error.problems)
    recorded = {entry["file"]: entry["sha256"] for entry in read_json(paths.VALIDATION)["checked"]}
    found = {entry["file"]: entry["sha256"] for entry in outcome["checked"]}
    return [
        Problem(str(paths.VALIDATION), "$.checked", f"is not of {file} as it is now; `dvc repro`")
        for file in sorted(recorded.keys() | found.keys())
        if recorded.get(file) != found.get(file)
    ]


@exit_on_user_error
def main() -> None:
    """Print one line for each problem and exit with 1, or say how many outputs were verified."""
    result = verify_lock()
    problems = [*result.problems, *schema_problems(measured=True), *measured_problems()]
    if not problems and paths.VALIDATION.is_file():
        problems = validation_problems()
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    elsewhere = f"; {result.absent} cached ones are not on this machine" if result.absent else ""
    print(f"{result.verified} outputs verified{elsewhere}")


if __name__ == "__main__":
    main()
