"""Text between stages: `.jsonl.zst` files, one JSON object a line, the same bytes every time.

zstd because its frames, unlike gzip's, carry no time stamp.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from x1_pretrain.errors import UserError

LEVEL = 3


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines through a temporary name and a rename; returns how many. Raises `UserError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    count = 0
    try:
        with (
            temporary.open("wb") as raw,
            zstandard.ZstdCompressor(level=LEVEL).stream_writer(raw) as stream,
            io.TextIOWrapper(stream, encoding="utf-8", newline="\n") as text,
        ):
            for line in lines:
                text.write(line)
                text.write("\n")
                count += 1
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: could not be written ({error.strerror})") from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def read_documents(documents_dir: Path) -> Iterator[dict[str, Any]]:
    """Every kept document {"id", "text", "split"}, domain by domain in order of their names.

    Raises `UserError` if there are none or a file is damaged.
    """
    paths = sorted(documents_dir.glob("*.jsonl.zst"))
    if not paths:
        raise UserError(f"{documents_dir}: no .jsonl.zst files; run the curate stage first")
    for path in paths:
        try:
            with (
                path.open("rb") as raw,
                zstandard.ZstdDecompressor().stream_reader(raw) as stream,
                io.TextIOWrapper(stream, encoding="utf-8", newline="\n") as text,
            ):
                yield from map(json.loads, text)
        except (zstandard.ZstdError, ValueError, OSError) as error:
            raise UserError(
                f"{path}: damaged ({error}); make it again with `dvc repro -f -s curate`"
            ) from error
