"""CSV with one column per metric, as W&B exports it, or with one metric per row, as MLflow does."""

import csv
from collections.abc import Iterator
from pathlib import Path

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.logs.points import NAMES, Log, Point, is_field, number, open_text, plain, point_of

LONG = {"metric": ("key", "metric", "metric_key", "name"), "value": ("value",)}


def column_of(
    header: list[str], field: str, given: dict[str, str], path: Path, required: bool = True
) -> int | None:
    """The one column of a field. Raises `UserError` if it is needed and there is none, or several."""
    listed = ", ".join(header)
    if field in given:
        if given[field] not in header:
            raise UserError(f"{path}: no column {given[field]!r} for the {field}; the columns are {listed}")
        return header.index(given[field])
    found = [i for i, name in enumerate(header) if is_field(name, field)]
    option = f"--{field.replace('_', '-')}"
    if len(found) > 1:
        names = ", ".join(header[i] for i in found)
        raise UserError(f"{path}: several columns may be the {field}: {names}; choose one with {option}")
    if not found and required:
        raise UserError(f"{path}: no column is the {field}; name it with {option}; the columns are {listed}")
    return found[0] if found else None


def table(path: Path, header: list[str], given: dict[str, str]) -> Log:
    names = [plain(name) for name in header]
    metric = next((names.index(name) for name in LONG["metric"] if name in names), None)
    value = next((names.index(name) for name in LONG["value"] if name in names), None)
    if metric is not None and value is not None and "loss" not in given:
        step = column_of(header, "step", given, path)
        run = column_of(header, "run", given, path, required=False)
        return Log(
            "a table of one metric per row (MLflow)", lambda: _long_table(path, step, metric, value, run)
        )
    required = ("step", "loss")
    places = {name: column_of(header, name, given, path, required=name in required) for name in NAMES}
    return Log("a table (CSV)", lambda: _wide_table(path, places))


def _wide_table(path: Path, places: dict[str, int | None]) -> Iterator[Point]:
    with open_text(path) as stream:
        rows = csv.reader(stream)
        next(rows, None)
        yield from (
            point for row in rows if (point := point_of({k: _cell(row, p) for k, p in places.items()}))
        )


def _cell(row: list[str], place: int | None) -> str | None:
    return row[place] if place is not None and place < len(row) else None


def _long_table(path: Path, step: int, metric: int, value: int, run: int | None) -> Iterator[Point]:
    """Losses, each with the gradient norm and lr of its step: two more readings of the file, side by side."""

    def of(field: str) -> Iterator[tuple[str, int, float]]:
        with open_text(path) as stream:
            rows = csv.reader(stream)
            next(rows, None)
            for row in rows:
                at, cell = number(_cell(row, step)), number(_cell(row, value))
                if at is not None and cell is not None and is_field(_cell(row, metric) or "", field):
                    yield _cell(row, run) or "", int(at), cell

    others = {field: _Follower(of(field)) for field in ("grad_norm", "lr")}
    for name, at, loss in of("loss"):
        found = {field: other.at(name, at) for field, other in others.items()}
        yield Point(at, loss, found["grad_norm"], found["lr"], run=name)


class _Follower:
    """The value of another metric at a step, from a reading that keeps pace with the losses'."""

    def __init__(self, rows: Iterator[tuple[str, int, float]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def at(self, run: str, step: int) -> float | None:
        while self._next is not None and self._next[0] == run and self._next[1] < step:
            self._next = next(self._rows, None)
        if self._next is None or self._next[:2] != (run, step):
            return None
        value, self._next = self._next[2], next(self._rows, None)
        return value
