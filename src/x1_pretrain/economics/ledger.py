"""The project's account book: one JSON line per charge, fsynced, never rewritten.

It lives beside the resumable state, not among the outputs, so that deleting or re-running a stage
cannot forget money already spent. A crash can tear only the last line; anything else that does not
parse was altered, and an altered account book is refused, with the number of the line.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from x1_pretrain.economics.cost import checked_price, usd_for
from x1_pretrain.errors import UserError


@dataclass(frozen=True)
class Charge:
    """One line: a stretch of a run, its seconds, the price in $/h and the dollars."""

    run_id: str
    elapsed_s: float
    price_usd_per_hour: float
    usd: float


class Ledger:
    """Append-only charges in a JSON-lines file, shared by processes under a file lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def charge(self, run_id: str, elapsed_s: float, price_usd_per_hour: float | None) -> Charge:
        """Append a charge; it is on disk when this returns.

        `elapsed_s` is the time since this run's last charge, by a monotonic clock. Raises
        `UserError` for a bad price or duration, an altered ledger, or a disk that is full.
        """
        price = checked_price(price_usd_per_hour)
        if not run_id:
            raise UserError(f"{self.path}: run_id is empty; every charge needs the run it is for")
        entry = Charge(run_id, float(elapsed_s), price, usd_for(elapsed_s, price))
        line = json.dumps(asdict(entry), allow_nan=False, ensure_ascii=False).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked("a+b") as stream:
                self._repair(stream)
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise UserError(f"{self.path}: the charge could not be written ({error.strerror})") from error
        return entry

    def entries(self) -> list[Charge]:
        """All charges, oldest first; a torn last line is not one. Raises `UserError` if altered."""
        if not self.path.exists():
            return []
        return self._parse(self.path.read_bytes())[0]

    def total_usd(self, run_id: str | None = None) -> float:
        """Dollars charged, by all runs or by one."""
        return math.fsum(entry.usd for entry in self.entries() if run_id in (None, entry.run_id))

    def total_s(self, run_id: str | None = None) -> float:
        """Seconds charged, by all runs or by one."""
        return math.fsum(e.elapsed_s for e in self.entries() if run_id in (None, e.run_id))

    @contextmanager
    def _locked(self, mode: str) -> Iterator[BinaryIO]:
        with self.path.open(mode) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # released when the file closes, also by a kill
            yield stream

    def _repair(self, stream: BinaryIO) -> None:
        """Cut a torn last line off, or give a whole one the newline it lacks."""
        stream.seek(0)
        content = stream.read()
        _, intact_bytes = self._parse(content)
        if intact_bytes < len(content):
            stream.truncate(intact_bytes)
        elif content and not content.endswith(b"\n"):
            stream.write(b"\n")

    def _parse(self, content: bytes) -> tuple[list[Charge], int]:
        """The charges, and how many bytes from the start are sound."""
        entries: list[Charge] = []
        intact_bytes = 0
        lines = content.splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                values = json.loads(line)
            except ValueError as error:
                if number == len(lines):
                    break
                raise UserError(
                    f"{self.path}: line {number} is not JSON, so the sum spent is not known; "
                    "restore the line or move the file away"
                ) from error
            entries.append(self._checked(values, number))
            intact_bytes += len(line)
        return entries, intact_bytes

    def _checked(self, values: object, number: int) -> Charge:
        where = f"{self.path}: line {number}"
        names = ("elapsed_s", "price_usd_per_hour", "usd")
        if not isinstance(values, dict) or set(values) != {"run_id", *names}:
            raise UserError(f"{where} is not a charge; it needs exactly run_id, {', '.join(names)}")
        for name in names:
            value = values[name]
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise UserError(f"{where}: {name} is {value!r}, expected a number")
            if not math.isfinite(value) or value < 0:
                raise UserError(f"{where}: {name} is {value}, expected 0 or more")
        if not isinstance(values["run_id"], str):
            raise UserError(f"{where}: run_id is {values['run_id']!r}, expected a string")
        return Charge(**values)
