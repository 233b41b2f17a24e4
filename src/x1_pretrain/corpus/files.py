"""The user's own text: .txt, .jsonl (plain, .gz or .zst) and .parquet files, by glob or folder.

The files are not copied. Fetching records names, sizes and sha256 in data/raw, so that the corpus
has an identity; reading refuses a file that is no longer the recorded one.
"""

import glob
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from x1_pretrain.deliverables.files import read_json, sha256_of, write_json
from x1_pretrain.errors import UserError

SUFFIXES = (".txt", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")


def record_files(domain: str, pattern: str, raw_dir: Path) -> str:
    """Write `<domain>.files.json` (name, sha256, bytes of each file); returns a line about it.

    Names are relative to the part of the pattern before its first wildcard: no path of a machine
    enters a hashed file. Raises `UserError` if nothing matches or a suffix cannot be read.
    """
    root, found = _matches(pattern)
    files = [
        {"file": _name(path, root), "sha256": sha256_of(path), "bytes": path.stat().st_size} for path in found
    ]
    write_json(raw_dir / f"{domain}.files.json", {"files": files})
    megabytes = sum(file["bytes"] for file in files) / 1e6
    return f"{len(files)} file{'s' * (len(files) != 1)}, {megabytes:.1f} MB, from {pattern}"


def read_recorded(domain: str, pattern: str, text_field: str, raw_dir: Path) -> Iterator[str]:
    """The texts of the recorded files, in order of their names.

    Raises `UserError` where files were added, removed or changed since they were recorded.
    """
    root, found = _matches(pattern)
    recorded = {f["file"]: f for f in read_json(raw_dir / f"{domain}.files.json")["files"]}
    present = {_name(path, root): path for path in found}
    if different := sorted(recorded.keys() ^ present.keys()):
        raise UserError(
            f"{pattern}: {different[0]} was {'removed' if different[0] in recorded else 'added'} "
            f"since the fetch stage; run it again with `dvc repro -f -s fetch`"
        )
    for name, path in sorted(present.items()):
        if sha256_of(path) != recorded[name]["sha256"]:
            raise UserError(
                f"{path}: changed since the fetch stage; run it again with `dvc repro -f -s fetch`"
            )
        yield from read_file(path, text_field)


def read_file(path: Path, text_field: str) -> Iterator[str]:
    """The texts of one file: a whole .txt, a field of each .jsonl line, a column of a .parquet.

    A null text counts as an empty one. Raises `UserError` naming file and line.
    """
    try:
        if path.name.endswith(".txt"):
            yield path.read_bytes().decode("utf-8")
        elif path.name.endswith(".parquet"):
            yield from _read_parquet(path, text_field)
        elif path.name.endswith(".gz"):
            with gzip.open(path) as stream:
                yield from _read_lines(path, stream, text_field)
        elif path.name.endswith(".zst"):
            with path.open("rb") as raw:
                stream = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
                yield from _read_lines(path, stream, text_field)
        else:
            with path.open("rb") as stream:
                yield from _read_lines(path, stream, text_field)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; convert the file first") from error
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise UserError(f"{path}: could not be read ({error})") from error


def _read_lines(path: Path, stream: BinaryIO, text_field: str) -> Iterator[str]:
    for number, line in enumerate(_lines(stream), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: not valid JSON ({error})") from error
        if not isinstance(row, dict) or text_field not in row:
            keys = ", ".join(row) if isinstance(row, dict) else "not an object"
            raise UserError(f"{path}, line {number}: no key {text_field!r} (keys: {keys})")
        text = row[text_field]
        if text is not None and not isinstance(text, str):
            raise UserError(
                f"{path}, line {number}: {text_field} is {type(text).__name__}, expected a string"
            )
        yield text or ""


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of a stream that may, as zstandard's, have only `read`."""
    rest = b""
    while block := stream.read(1 << 20):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _read_parquet(path: Path, text_field: str) -> Iterator[str]:
    import pyarrow as pa  # only here: half a second that no other source needs
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            if text_field not in table.schema_arrow.names:
                columns = ", ".join(table.schema_arrow.names)
                raise UserError(f"{path}: no column {text_field!r} (columns: {columns})")
            kind = table.schema_arrow.field(text_field).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise UserError(f"{path}: column {text_field!r} is {kind}, expected a string")
            for batch in table.iter_batches(batch_size=1024, columns=[text_field]):
                yield from (text or "" for text in batch.column(0).to_pylist())
    except pa.ArrowException as error:
        raise UserError(f"{path}: not a readable Parquet file ({error})") from error


def _matches(pattern: str) -> tuple[Path, list[Path]]:
    """The fixed folder of a pattern, and the files it names, sorted."""
    place = Path(pattern).expanduser()
    if place.is_dir():
        every = (path for path in place.rglob("*") if path.is_file())
        root, found = place, [path for path in every if path.name.endswith(SUFFIXES)]
    else:
        parts = place.parts
        wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
        root = Path(*parts[:wild])
        names = glob.glob(str(place), recursive=True)
        found = [path for path in map(Path, names) if path.is_file()]
    if not found:
        raise UserError(f"{pattern}: no file matches; patterns name {', '.join(SUFFIXES)} files")
    for path in found:
        if not path.name.endswith(SUFFIXES):
            raise UserError(f"{path}: cannot be read; use {', '.join(SUFFIXES)} files")
    return root, sorted(found, key=lambda path: _name(path, root))


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
