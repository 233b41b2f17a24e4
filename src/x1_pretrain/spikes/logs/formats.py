"""Training logs of other programs as a stream of points, whatever their format.

Understood are tables, JSON records and printed lines; memory does not grow with the log.
"""

import csv
import re
from pathlib import Path

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.logs.json_records import json_log
from x1_pretrain.spikes.logs.lines import LINE_FORMATS, format_of, lines
from x1_pretrain.spikes.logs.points import Log, open_text
from x1_pretrain.spikes.logs.tables import column_of, table

HEAD_CHARACTERS = 1 << 16  # enough to tell a format


def open_log(path: Path, columns: dict[str, str] | None = None) -> Log:
    """Tell a log's format by its beginning. `columns` names the column of a field where guessing cannot.

    Raises `UserError` if the file is empty, or no step with a loss can be found in it.
    """
    given = columns or {}
    with open_text(path) as stream:
        head = stream.read(HEAD_CHARACTERS)
    text = head.lstrip("\ufeff \t\r\n")
    if not text:
        raise UserError(f"{path}: the file is empty; a log of steps and losses is needed")
    if re.match(r"\{|\[\s*\{", text):
        return json_log(path, text, given)
    header = next(csv.reader([text.splitlines()[0]]), [])
    if len(header) > 1 and column_of(header, "step", given, path, required=False) is not None:
        return table(path, header, given)
    kind = format_of(head.splitlines())
    if kind is None:  # a log may begin with its own source code
        with open_text(path) as stream:
            kind = format_of(stream)
    if kind is not None:
        return Log(kind.name, lambda: lines(path, kind))
    found = f"its first line has the columns {', '.join(header)}" if len(header) > 1 else "no line has one"
    raise UserError(
        f"{path}: no step was found ({found}); known are tables and JSON records with a step and a loss, and "
        f"the lines of {', '.join(kind.name for kind in LINE_FORMATS)}; --step and --loss name a column"
    )
