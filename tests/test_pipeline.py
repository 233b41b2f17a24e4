"""dvc.yaml lists the code that each stage really runs: a changed preprocessor must invalidate its data."""

import ast
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/x1_pretrain"

# Modules that carry, report or guard a run but cannot change what it writes. Their parameters are tracked
# by value; a better error message or progress bar must not cost a re-training.
INERT = {
    "__init__",
    "budget_guard",
    "economics.course",
    "economics.estimate",
    "economics.hardware",
    "economics.ledger",
    "economics.ledger_lines",
    "economics.preflight",
    "economics.prices",
    "errors",
    "limits",
    "memory",
    "meters",
    "paths",
    "progress",
    "run_budget",
    "signals",
    "spending",
    "study",
    "tracking",
    "typed_yaml",
}


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("x1_pretrain"):
            for alias in node.names:
                found |= {node.module, f"{node.module}.{alias.name}"}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("x1_pretrain")}
    names = {name.removeprefix("x1_pretrain").removeprefix(".") for name in found}
    return {name for name in names if name and file_of(name).is_file()}


def file_of(module: str) -> Path:
    return PACKAGE / f"{module.replace('.', '/')}.py"


def closure(stage_file: Path, left_out: set[str] = INERT) -> set[str]:
    seen: set[str] = set()
    waiting = imported(stage_file)
    while waiting:
        module = waiting.pop()
        if module not in seen and module not in left_out:
            seen.add(module)
            waiting |= imported(file_of(module))
    return seen


def stages() -> dict[str, dict]:
    return YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]


@pytest.mark.parametrize("name", stages())
def test_a_stage_depends_on_the_code_it_imports_and_on_no_other(name):
    stage = stages()[name]
    script = ROOT / stage["cmd"].split()[1]
    code = {dep for dep in stage["deps"] if dep.startswith(("src/", "stages/"))}
    needed = {str(file_of(module).relative_to(ROOT)) for module in closure(script)}
    covered = {path for path in needed if any(path == dep or path.startswith(f"{dep}/") for dep in code)}
    folders = {dep for dep in code if (ROOT / dep).is_dir()}
    assert sorted(needed - covered) == [], f"{name}: missing from deps"
    imported_at_all = {str(file_of(module).relative_to(ROOT)) for module in closure(script, left_out=set())}
    unused = code - folders - imported_at_all - {str(script.relative_to(ROOT))}
    assert sorted(unused) == [], f"{name}: listed but not imported"
    assert all(any(path.startswith(f"{folder}/") for path in needed) for folder in folders)
    assert str(script.relative_to(ROOT)) in code


def test_only_the_stages_that_compute_with_torch_import_it():
    using = {
        script.stem
        for script in (ROOT / "stages").glob("*.py")
        if any("import torch" in file_of(m).read_text() for m in closure(script, left_out=set()))
    }
    assert using == {"train", "sweep", "spike", "inference"}


def test_expensive_stages_have_no_plain_output_in_git():
    """DVC deletes such outputs when a stage fails, and never restores the stage from its run-cache."""
    for name in ("fetch", "curate", "tokenize", "train", "sweep", "spike"):
        assert all(isinstance(out, str) for out in stages()[name]["outs"]), name


def test_nothing_is_hidden_from_dvc():
    text = (ROOT / "dvc.yaml").read_text()
    for forbidden in ("frozen:", "always_changed:", "persist:"):
        assert forbidden not in text


if __name__ == "__main__":  # the lists, for whoever edits dvc.yaml
    for script in sorted((ROOT / "stages").glob("*.py")):
        print(
            script.name, *sorted(str(file_of(m).relative_to(ROOT)) for m in closure(script)), sep="\n      - "
        )
