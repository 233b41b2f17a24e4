"""The lines that nanoGPT, llm.c, modded-nanogpt and Megatron print, wrapped ones included."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from x1_pretrain.spikes.logs.points import Point, open_text, point_of

WRAPPED_LINES = 12  # a record that a terminal wrapped has no more
NUMBER = r"([-+]?(?:nan|inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?))"


@dataclass(frozen=True)
class LineFormat:
    """How one program prints a step: where a record starts, and its other fields."""

    name: str
    start: re.Pattern[str]  # its first group is the step
    fields: dict[str, re.Pattern[str]]
    wraps: bool = False  # a record may go on over the next lines


def _line(name: str, start: str, wraps: bool = False, **fields: str) -> LineFormat:
    compiled = {key: re.compile(pattern + NUMBER, re.IGNORECASE) for key, pattern in fields.items()}
    return LineFormat(name, re.compile(start, re.IGNORECASE), compiled, wraps)


LINE_FORMATS = (
    _line(
        "Megatron",
        r"\biteration\s+(\d+)\s*/\s*\d+\s*\|",
        wraps=True,  # words may be broken anywhere, so spaces inside them are optional
        loss=r"lm\s*loss(?:\s*value)?\s*:\s*",
        grad_norm=r"grad\s*norm\s*:\s*",
        lr=r"learning\s*rate\s*:\s*",
        loss_scale=r"loss\s*scale\s*:\s*",
        skipped=r"number\s*of\s*skipped\s*iterations\s*:\s*",
    ),
    _line("nanoGPT", r"^\s*iter (\d+): loss", loss=r"loss ", grad_norm=r"norm ", lr=r"\blr "),
    _line(
        "llm.c",
        r"^\s*step\s+(\d+)/\d+ \| (?:train )?loss",
        loss=r"loss\s+",
        grad_norm=r"norm\s+",
        lr=r"\blr\s+",
    ),
    _line("llm.c main.log", r"^s:(\d+) trl:", loss=r"trl:", grad_norm=r"norm:", lr=r"lr:"),
    _line("modded-nanogpt", r"^\s*step:(\d+)(?:/\d+)? train_loss:", loss=r"train_loss:", grad_norm=r"norm:"),
)


def format_of(printed: Iterable[str]) -> LineFormat | None:
    """The format of the first line that begins a record of one."""
    for line in printed:
        for kind in LINE_FORMATS:
            if kind.start.search(line):
                return kind
    return None


def lines(path: Path, kind: LineFormat) -> Iterator[Point]:
    with open_text(path) as stream:
        record, step, lines = "", None, 0
        for line in stream:
            start = kind.start.search(line)
            if start is None:
                if kind.wraps and step is not None and lines < WRAPPED_LINES and line.strip():
                    record, lines = record + line.rstrip("\r\n"), lines + 1
                continue
            if step is not None and (point := _line_point(kind, step, record)):
                yield point
            record, step, lines = line[start.start() :].rstrip("\r\n"), int(start.group(1)), 1
        if step is not None and (point := _line_point(kind, step, record)):
            yield point


def _line_point(kind: LineFormat, step: int, record: str) -> Point | None:
    found = {field: pattern.search(record) for field, pattern in kind.fields.items()}
    return point_of({"step": step, **{field: match.group(1) for field, match in found.items() if match}})
