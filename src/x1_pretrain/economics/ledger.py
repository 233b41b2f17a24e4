"""The project's account book: JSON lines, fsynced, appended under a lock, never rewritten.

It lives beside the resumable state, not among the outputs, so that deleting or re-running a stage
cannot forget money already spent. The first line names the project. Every attempt to compute something
begins, beats while it lives and ends; an attempt without an end is running or was killed, and is charged
up to its last beat and one interval more, within which its next beat would have come. Nothing has to
notice a kill for its time to be paid, and no clock of the wall counts.

A crash can tear only the last line; anything else that does not parse was altered, and an altered
account book is refused, with the number of the line.
"""

import fcntl
import json
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from x1_pretrain.economics.cost import checked_price, usd_for
from x1_pretrain.economics.ledger_lines import Attempt, taken
from x1_pretrain.errors import UserError

FORMAT = 1


@dataclass
class _Read:
    """What was parsed so far, so that a growing file is read once."""

    inode: int = 0
    sound_bytes: int = 0
    lines: int = 0
    project: str | None = None
    attempts: dict[str, Attempt] = field(default_factory=dict)


class Ledger:
    """Append-only attempts in a JSON-lines file, shared by threads and processes under a file lock.

    `project` is whose money it is: the ledger of another is refused. None accepts any.
    """

    def __init__(self, path: Path, project: str | None = None) -> None:
        self.path, self.project = path, project
        self._read, self._thread_lock = _Read(), threading.Lock()

    def begin(
        self,
        attempt: str,
        stage: str,
        run_id: str,
        price_usd_per_hour: float | None,
        interval_s: float,
        elapsed_s: float,
        utc: str,
    ) -> None:
        """The first line of an attempt. Raises `UserError` for a bad price, duration or empty name."""
        checked_price(price_usd_per_hour)
        line = {
            "attempt": attempt,
            "event": "begin",
            "stage": stage,
            "run_id": run_id,
            "price_usd_per_hour": price_usd_per_hour,
            "interval_s": interval_s,
            "elapsed_s": elapsed_s,
            "utc": utc,
        }
        if not (attempt and stage and run_id):
            raise UserError(f"{self.path}: an attempt needs an id, a stage and a run_id, found {line}")
        self._append(line)

    def beat(self, attempt: str, elapsed_s: float, utc: str) -> None:
        """The attempt has taken `elapsed_s` seconds since it began, and lives.

        On disk when this returns. Raises `UserError` for a negative duration, an altered ledger or a disk
        that is full.
        """
        usd_for(elapsed_s, 0.0)
        self._append({"attempt": attempt, "event": "beat", "elapsed_s": elapsed_s, "utc": utc})

    def expect(self, attempt: str, elapsed_s: float, utc: str, expected_s: float) -> None:
        """The attempt expects to have taken `expected_s` seconds at its end. Raises like `beat`."""
        usd_for(expected_s, 0.0)
        line = {"attempt": attempt, "event": "expect", "elapsed_s": elapsed_s, "utc": utc}
        self._append({**line, "expected_s": expected_s})

    def end(self, attempt: str, elapsed_s: float, utc: str, status: str) -> None:
        """The attempt is over, for the reason `status`. Raises like `beat`."""
        usd_for(elapsed_s, 0.0)
        line = {"attempt": attempt, "event": "end", "elapsed_s": elapsed_s, "utc": utc, "status": status}
        self._append(line)

    def attempts(self) -> list[Attempt]:
        """All attempts, oldest first; a torn last line is not one. Raises `UserError` if altered."""
        self._refresh()
        return list(self._read.attempts.values())

    def total_usd(self, run_id: str | None = None) -> float:
        """Dollars charged, by all runs or by one."""
        return math.fsum(a.charged_usd for a in self.attempts() if run_id in (None, a.run_id))

    def total_s(self, run_id: str | None = None) -> float:
        """Seconds charged, by all runs or by one."""
        return math.fsum(a.charged_s for a in self.attempts() if run_id in (None, a.run_id))

    # ------------------------------------------------------------ the file

    def _append(self, line: dict[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._thread_lock, self._locked("a+b") as stream:
                self._repair(stream)
                if self._read.project is None:
                    self._write(stream, {"ledger": FORMAT, "project": self.project or "x1-pretrain"})
                self._write(stream, line)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise UserError(f"{self.path}: the charge could not be written ({error.strerror})") from error

    @staticmethod
    def _write(stream: BinaryIO, line: dict[str, Any]) -> None:
        stream.write(json.dumps(line, allow_nan=False, ensure_ascii=False).encode() + b"\n")

    @contextmanager
    def _locked(self, mode: str) -> Iterator[BinaryIO]:
        with self.path.open(mode) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # released when the file closes, also by a kill
            yield stream

    def _repair(self, stream: BinaryIO) -> None:
        """Cut a torn last line off, or give a whole one the newline it lacks."""
        size = self._parse(stream)
        if size > self._read.sound_bytes:
            stream.truncate(self._read.sound_bytes)
        elif size:
            stream.seek(size - 1)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
                self._read.sound_bytes += 1

    def _refresh(self) -> None:
        """Read on, if the file has grown: cheap enough for every step of a training loop."""
        with self._thread_lock:
            try:
                status = self.path.stat()
            except FileNotFoundError:
                return
            if (status.st_ino, status.st_size) != (self._read.inode, self._read.sound_bytes):
                with self.path.open("rb") as stream:
                    self._parse(stream)

    def _parse(self, stream: BinaryIO) -> int:
        """Read what was appended since the last time; returns the size of the file in bytes."""
        status = os.fstat(stream.fileno())
        if status.st_ino != self._read.inode or status.st_size < self._read.sound_bytes:
            self._read = _Read(inode=status.st_ino)
        stream.seek(self._read.sound_bytes)
        rest = stream.read()
        lines = rest.splitlines(keepends=True)
        for index, line in enumerate(lines):
            if index == 0 and self._read.sound_bytes and not line.strip():  # of a line read without it
                self._read.sound_bytes += len(line)
                continue
            number = self._read.lines + 1
            try:
                values = json.loads(line)
            except ValueError as error:
                if index == len(lines) - 1:
                    break
                raise UserError(
                    f"{self.path}: line {number} is not JSON, so the sum spent is not known; "
                    "restore the line or move the file away"
                ) from error
            self._take(values, number)
            self._read.lines = number
            self._read.sound_bytes += len(line)
        return status.st_size

    def _take(self, values: Any, number: int) -> None:
        where = f"{self.path}: line {number}"
        if number == 1:
            self._read.project = self._checked_project(values, where)
            return
        attempt = taken(self._read.attempts, values, where)
        self._read.attempts[attempt.id] = attempt

    def _checked_project(self, values: Any, where: str) -> str:
        if not isinstance(values, dict) or set(values) != {"ledger", "project"} or values["ledger"] != FORMAT:
            raise UserError(f"{where} does not say whose ledger (format {FORMAT}) it is; move the file away")
        project = str(values["project"])
        if self.project is not None and project != self.project:
            raise UserError(
                f"{where}: this is the ledger of project {project!r}, not of {self.project!r} (money.project "
                "of the profile); set X1_SCRATCH to a folder of this project's own, or move the file away"
            )
        return project
