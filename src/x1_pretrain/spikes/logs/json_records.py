"""JSON records: one per line, a list, or Hugging Face's trainer_state.json; never read as a whole."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.logs.points import NAMES, Log, Point, is_field, open_text, point_of

PIECE_CHARACTERS = 1 << 16
RECORD_CHARACTERS = 1 << 20  # no record of a log is longer


def json_log(path: Path, text: str, given: dict[str, str]) -> Log:
    first = text.splitlines()[0]
    try:
        one_per_line = isinstance(json.loads(first), dict) and '"log_history"' not in first
    except ValueError:
        one_per_line = False
    if one_per_line:
        return Log("JSON, one record per line", lambda: _records(_json_lines(path), given))
    if text[0] == "[":
        return Log("a list of JSON records", lambda: _records(_json_list(path, None), given))
    return Log("trainer_state.json", lambda: _records(_json_list(path, "log_history"), given))


def _json_lines(path: Path) -> Iterator[Any]:
    with open_text(path) as stream:
        for n, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    if not line.endswith("\n"):
                        return  # the last line of a log that was being written
                    raise UserError(f"{path}, line {n}: not JSON ({error})") from error


def _json_list(path: Path, key: str | None) -> Iterator[Any]:
    """The records of the list under `key` (of the file itself for None), without reading it whole."""
    decoder, buffer = json.JSONDecoder(), ""
    with open_text(path) as stream:
        opening = re.compile(r"\[" if key is None else rf'"{key}"\s*:\s*\[')
        while (found := opening.search(buffer)) is None:
            piece = stream.read(PIECE_CHARACTERS)
            if not piece:
                raise UserError(f"{path}: no list {key or 'of records'} of JSON records was found in it")
            buffer = buffer[-64:] + piece
        buffer = buffer[found.end() :]
        while True:
            buffer = buffer.lstrip(", \t\r\n")
            if buffer.startswith("]"):
                return
            try:
                record, end = decoder.raw_decode(buffer)
                buffer = buffer[end:]
            except ValueError as error:
                piece = stream.read(PIECE_CHARACTERS)
                if not piece or len(buffer) > RECORD_CHARACTERS:
                    raise UserError(f"{path}: cut off or not JSON after {buffer[:40]!r}") from error
                buffer += piece
                continue
            yield record


def _records(records: Iterator[Any], given: dict[str, str]) -> Iterator[Point]:
    for record in records:
        if not isinstance(record, dict) or "train_runtime" in record:
            continue  # Hugging Face's last record has the mean loss of the whole run
        cells = {}
        for field in NAMES:
            names = [given[field]] if field in given else [name for name in record if is_field(name, field)]
            cells[field] = next((record[name] for name in names if name in record), None)
        if point := point_of(cells):
            yield point
