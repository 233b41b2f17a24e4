"""What is wrong with a deliverable, in the one form every check reports: file, place, reason."""

from collections.abc import Iterable
from dataclasses import dataclass

from x1_pretrain.errors import UserError


@dataclass(frozen=True)
class Problem:
    """`path` is a JSON path such as `$.points[2].D`, or `$` when the whole file is meant."""

    file: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.path}: {self.reason}"


class InvalidDeliverablesError(UserError):
    """Carries every problem found; its message has one line for each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = [f"{count} problem{'s' if count != 1 else ''} in the deliverables"]
        super().__init__("\n  ".join([*lines, *map(str, self.problems)]))


def shortened(value: object, limit: int = 60) -> str:
    """A value as JSON-like text that fits in a line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
