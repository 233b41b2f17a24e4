"""The parts of a check, one after the other: what each found, and that all of them end in time."""

import faulthandler
import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

OVERRUN_S = 40.0  # what a part that began in time may take beyond the budget
STUCK_S = 10.0  # later the process ends even if Python itself is stuck in a call


@dataclass(frozen=True)
class Findings:
    """What a part measured, and what of it is wrong."""

    measured: Mapping[str, Any]
    wrong: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        measured: Mapping[str, Any],
        at_most: Mapping[str, float],
        at_least: Mapping[str, float] | None = None,
    ) -> "Findings":
        """Hold what was measured against its limits; a NaN is never within one."""
        wrong = [f"{k} {measured[k]:.3g} is above {v:g}" for k, v in at_most.items() if not measured[k] <= v]
        for name, limit in (at_least or {}).items():
            if not measured[name] >= limit:
                wrong.append(f"{name} {measured[name]:.6g} is below {limit:g}")
        return cls({**measured, "at_most": dict(at_most), "at_least": dict(at_least or {})}, tuple(wrong))


@dataclass
class Report:
    """Runs the parts and keeps what they found. `seconds` count from `started` (time.monotonic).

    A part is of a kind; it begins if there is time for as long as the longest of its kind took, or for
    `needs_s` of the kind if it is the first.
    """

    seconds: float
    started: float
    header: Mapping[str, Any]
    needs_s: Mapping[str, float]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._longest_s: dict[str, float] = {}
        self._running: str | None = None
        self._lock = threading.Lock()

    def left_s(self) -> float:
        return self.seconds - (time.monotonic() - self.started)

    def watch(self) -> None:
        """End the process, with the line of results, if a part hangs or takes far too long."""
        left_s = max(0.0, self.left_s()) + OVERRUN_S
        timer = threading.Timer(left_s, self._give_up)
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(left_s + STUCK_S, exit=True)

    def part(self, kind: str, name: str, work: Callable[[], Findings], unless: str | None = None) -> None:
        """Run a part and keep what it finds; `unless` is a reason why it cannot be done here."""
        name = f"{kind} {name}".rstrip()
        if unless is None and self.left_s() < self._longest_s.get(kind, self.needs_s[kind]):
            unless = f"no time: {max(0.0, self.left_s()):.0f} s are left of {self.seconds:g}"
        if unless is not None:
            self._add(name, {"status": "skipped", "reason": unless})
            return
        self._running, clock = name, time.monotonic()
        try:
            found = work()
            result = {"status": "failed" if found.wrong else "ok", "reason": "; ".join(found.wrong)}
            result |= found.measured
        except Exception as error:  # that one part cannot run says nothing about the others
            traceback.print_exc()
            result = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        self._running, took_s = None, time.monotonic() - clock
        self._longest_s[kind] = max(took_s, self._longest_s.get(kind, 0.0))
        self._add(name, {**result, "seconds": round(took_s, 1)})

    def finish(self) -> int:
        """The one line on stdout; the exit status: 1 if a part failed."""
        self._lock.acquire()  # and keep it: nobody prints after this
        return self._print()

    def _add(self, name: str, result: dict[str, Any]) -> None:
        with self._lock:
            self.parts[name] = result
        shown = {k: v for k, v in result.items() if k not in ("status", "reason", "at_most", "at_least")}
        reason = f" ({result['reason']})" if result.get("reason") else ""
        print(f"{name}: {result['status']}{reason} {_short(shown)}", file=sys.stderr, flush=True)

    def _give_up(self) -> None:
        with self._lock:  # and keep it: nobody prints after this
            if self._running:
                reason = f"not done {OVERRUN_S:g} s after the {self.seconds:g} s that all parts have"
                self.parts[self._running] = {"status": "failed", "reason": reason}
            self._print()
            os._exit(1)

    def _print(self) -> int:
        names = {
            status: [name for name, part in self.parts.items() if part["status"] == status]
            for status in ("failed", "skipped")
        }
        elapsed_s = round(time.monotonic() - self.started, 1)
        ok = not names["failed"]
        line = {**self.header, "ok": ok, **names, "elapsed_s": elapsed_s, "parts": self.parts}
        print(json.dumps(_finite(line)), flush=True)
        return 0 if ok else 1


def _short(values: Mapping[str, Any]) -> str:
    numbers = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in values.items()}
    return ", ".join(f"{k} {v}" for k, v in numbers.items())


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
