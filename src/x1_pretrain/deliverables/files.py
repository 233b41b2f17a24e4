"""Write deliverables atomically and always in the same bytes."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from x1_pretrain.errors import UserError


def write_bytes(path: Path, content: bytes) -> None:
    """Write through a temporary name and a rename, so that a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: could not be written ({error.strerror})") from error


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, content: Any) -> None:
    """JSON with two spaces and a final newline; NaN and Infinity are refused (use null)."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Parsed JSON. Raises `UserError` naming the file if it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; the stage that makes it has not run") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from error


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
