"""`python -m x1_pretrain.deliverables.validate [FILES...]`: deliverables against their schemas.

Without files: all of them, and each against the others. Prints every problem with file, JSON path
and reason, and exits with a status that is not 0 when there is one.
"""

import sys
from pathlib import Path
from typing import Any

from x1_pretrain import paths
from x1_pretrain.deliverables.cross_checks import CHECKS
from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.deliverables.measured_checks import measured_problems
from x1_pretrain.deliverables.parsed import Files
from x1_pretrain.deliverables.problems import InvalidDeliverablesError, Problem
from x1_pretrain.deliverables.registry import entry_of, present
from x1_pretrain.deliverables.schemas import check_file, parse
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.study import load_study

SKIPPED = "not present: skipped"


def schema_problems(measured: bool = False) -> list[Problem]:
    """Every deliverable of the project in this directory against its schema."""
    return [
        problem
        for path, entry in present(Path(), measured=measured)
        for problem in check_file(path, entry.schema)
    ]


def validate() -> dict[str, Any]:
    """The content of validation.json.

    Raises `InvalidDeliverablesError` with every problem. Files are compared with each other only
    when each fits its schema, and the outcome says which comparisons had nothing to look at.
    """
    own = [(path, e) for path, e in present(Path()) if path != paths.VALIDATION]
    problems = [problem for path, entry in own for problem in check_file(path, entry.schema)]
    if problems:
        raise InvalidDeliverablesError(problems)
    files = Files(load_study(), {path: parse(path) for path, _ in own})
    results = {check.__name__: check(files) for check in CHECKS}
    problems = [problem for found in results.values() for problem in found or []]
    if problems:
        raise InvalidDeliverablesError(problems)
    return {
        "valid": True,
        "checked": [
            {"file": path.as_posix(), "schema": entry.schema, "sha256": sha256_of(path)}
            for path, entry in own
        ],
        "cross_checks": [
            {"name": name, "result": SKIPPED if found is None else "passed"}
            for name, found in results.items()
        ],
    }


@exit_on_user_error
def main(arguments: list[str] | None = None) -> None:
    """Check the given files, or everything."""
    names = sys.argv[1:] if arguments is None else arguments
    if not names:
        outcome = validate()
        if problems := measured_problems():
            raise InvalidDeliverablesError(problems)
        checked, crossed = len(outcome["checked"]), len(outcome["cross_checks"])
        print(f"{checked} deliverables fit their schemas, {crossed} cross-checks passed or skipped")
        return
    problems = [p for name in names for p in check_file(Path(name), entry_of(Path(name)).schema)]
    if problems:
        raise InvalidDeliverablesError(problems)
    print(f"{len(names)} deliverables fit their schemas")


if __name__ == "__main__":
    main()
