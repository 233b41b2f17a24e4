"""What `dvc.lock` recorded, and the same hashes taken anew from the bytes in the workspace.

DVC itself trusts its table of modification times; a verifier must not, so it reads the files.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from x1_pretrain.errors import UserError
from x1_pretrain.typed_yaml import read_yaml

LOCK = Path("dvc.lock")
CACHE = Path(".dvc/cache/files/md5")


@dataclass(frozen=True)
class Entry:
    """One dependency or output in the lock; `md5` ends with `.dir` for a directory."""

    path: str
    md5: str
    size: int | None

    @property
    def is_directory(self) -> bool:
        return self.md5.endswith(".dir")


@dataclass(frozen=True)
class LockedStage:
    """A stage as it last ran: its command, inputs, outputs, and parameters by file and key."""

    name: str
    cmd: str
    deps: tuple[Entry, ...]
    outs: tuple[Entry, ...]
    params: dict[str, dict[str, Any]]


def read_lock(path: Path = LOCK) -> dict[str, LockedStage]:
    """The stages of a lock by name. Raises `UserError` if it is missing or not one of DVC 3."""
    if not path.is_file():
        raise UserError(f"{path}: no such file here; run from the root of the project, after `dvc repro`")
    content = read_yaml(path)
    try:
        return {name: _stage(name, stage) for name, stage in (content["stages"] or {}).items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a lock that DVC 3 wrote ({error!r})") from error


def _stage(name: str, stage: dict[str, Any]) -> LockedStage:
    def entries(kind: str) -> tuple[Entry, ...]:
        listed = stage.get(kind, [])
        return tuple(Entry(item["path"], item["md5"], item.get("size")) for item in listed)

    cmd = stage["cmd"]
    return LockedStage(
        name=name,
        cmd=cmd if isinstance(cmd, str) else "\n".join(cmd),
        deps=entries("deps"),
        outs=entries("outs"),
        params=stage.get("params", {}),
    )


def md5_of(path: Path) -> str:
    """Hex md5 of a file's bytes, DVC's identity of a file (identity, not protection)."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def listing(folder: Path, ignored: Callable[[Path], bool]) -> list[dict[str, str]]:
    """A directory as DVC lists it: the md5 and relative path of each file, by path."""
    files = (path for path in _walk(folder, ignored))
    entries = [{"md5": md5_of(p), "relpath": p.relative_to(folder).as_posix()} for p in files]
    return sorted(entries, key=lambda entry: entry["relpath"])


def md5_of_listing(entries: list[dict[str, str]]) -> str:
    """DVC's identity of a directory: the md5 of its listing as JSON, with `.dir` appended."""
    return hashlib.md5(json.dumps(entries, sort_keys=True).encode()).hexdigest() + ".dir"


def difference(entry: Entry, ignored: Callable[[Path], bool]) -> str | None:
    """How the workspace differs from a lock entry, or None. The path must exist."""
    path = Path(entry.path)
    if path.is_dir() != entry.is_directory:
        return "is a directory" if path.is_dir() else "is a file, not the directory it was"
    if not entry.is_directory:
        actual = md5_of(path)
        if actual == entry.md5:
            return None
        size = path.stat().st_size
        change = f"; {size} bytes instead of {entry.size}" if size != entry.size else ""
        return f"its md5 is {actual}, not {entry.md5}{change}"
    entries = listing(path, ignored)
    if md5_of_listing(entries) == entry.md5:
        return None
    return f"its md5 is {md5_of_listing(entries)}, not {entry.md5}{_which(entry, entries)}"


def _which(entry: Entry, entries: list[dict[str, str]]) -> str:
    """Names the files that differ, where DVC's cache still has the old listing."""
    cached = CACHE / entry.md5[:2] / entry.md5[2:]
    if not cached.is_file():
        return ""
    old = {item["relpath"]: item["md5"] for item in json.loads(cached.read_text("utf-8"))}
    new = {item["relpath"]: item["md5"] for item in entries}
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return f" (differs: {', '.join(changed[:5])}{', ...' if len(changed) > 5 else ''})"


def _walk(folder: Path, ignored: Callable[[Path], bool]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if ignored(path):
            continue
        if path.is_dir():
            yield from _walk(path, ignored)
        else:
            yield path
