"""Reading a peer's checkout: its modules, and the hyperparameters that stand in its own scripts.

The scripts are read, not run (they train at import): a number that changes there changes here.
"""

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from x1_pretrain.errors import UserError


def constants(script: Path, names: Iterable[str]) -> dict[str, float]:
    """Numbers assigned at the top level of a script. Raises `UserError` for one that is not there."""
    found = {}
    for node in _parsed(script).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return _numbers(script, names, found)


def argparse_defaults(script: Path, names: Iterable[str]) -> dict[str, float]:
    """Default values of a script's options, named as after parsing. Raises `UserError` for a missing one."""
    found = {}
    for node in ast.walk(_parsed(script)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "add_argument":
            option = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            for keyword in node.keywords:
                if keyword.arg == "default":
                    found[str(option).removeprefix("--").replace("-", "_")] = keyword.value
    return _numbers(script, names, found)


def module_from(path: Path, name: str) -> ModuleType:
    """Import one file under a name. Raises `UserError` if it is not there."""
    if not path.is_file():
        raise UserError(f"--peer: {path} is not there; give the folder of a checkout of the peer")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # torch.compile looks a function's module up by name
    spec.loader.exec_module(module)
    return module


def package_module(checkout: Path, name: str) -> ModuleType:
    """Import a module of a package in the checkout. Raises `UserError` if it, or a need of it, is missing."""
    path = checkout.joinpath(*name.split(".")).with_suffix(".py")
    if not path.is_file():
        raise UserError(f"--peer: {path} is not there; give the folder of a checkout of the peer")
    sys.path.insert(0, str(checkout.resolve()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"--peer {checkout}: {name} needs {error.name}; install it beside torch") from error
    finally:
        sys.path.pop(0)


def source_sha256(checkout: Path, files: Iterable[str]) -> str:
    """sha256 over the peer's files that were used: which version was measured."""
    sha = hashlib.sha256()
    for name in files:
        sha.update(name.encode() + (checkout / name).read_bytes())
    return sha.hexdigest()


def _parsed(script: Path) -> ast.Module:
    try:
        return ast.parse(script.read_text(encoding="utf-8"))
    except (OSError, SyntaxError) as error:
        raise UserError(f"--peer: {script} cannot be read ({error}); give a checkout of the peer") from error


def _numbers(script: Path, names: Iterable[str], found: dict[str, ast.expr]) -> dict[str, float]:
    numbers = {}
    for name in names:
        try:
            numbers[name] = float(ast.literal_eval(found[name]))
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(
                f"--peer: {script} sets no number for {name}; "
                "give a checkout of the version that benchmarks/README.md names"
            ) from error
    return numbers
