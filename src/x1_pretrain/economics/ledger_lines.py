"""What a line of the ledger may say, and what an attempt is after it."""

import math
from dataclasses import dataclass, replace
from typing import Any

from x1_pretrain.economics.cost import usd_for
from x1_pretrain.errors import UserError

BEAT = {"attempt": str, "elapsed_s": float, "utc": str}
EXPECT = {**BEAT, "expected_s": float}
END = {**BEAT, "status": str}
BEGIN = {
    **BEAT,
    "stage": str,
    "run_id": str,
    "price_usd_per_hour": float,
    "interval_s": float,
}
EVENTS = {"begin": BEGIN, "beat": BEAT, "expect": EXPECT, "end": END}


@dataclass(frozen=True)
class Attempt:
    """One process's work on one run, as far as the ledger knows; `elapsed_s` is up to its last line."""

    id: str
    stage: str
    run_id: str
    price_usd_per_hour: float
    interval_s: float
    utc: str  # of its last line; tells how long ago that is, never what is charged
    elapsed_s: float = 0.0
    expected_s: float = 0.0  # what it expects to have taken at its end
    status: str | None = None  # why it ended; None while it runs, and after a kill

    @property
    def charged_s(self) -> float:
        """Never less than the time the attempt has taken: see the file's first lines."""
        return self.elapsed_s + (self.interval_s if self.status is None else 0.0)

    @property
    def charged_usd(self) -> float:
        return usd_for(self.charged_s, self.price_usd_per_hour)

    @property
    def expected_usd(self) -> float:
        """What it still expects to cost if it runs to its end."""
        return usd_for(max(0.0, self.expected_s - self.charged_s), self.price_usd_per_hour)


def taken(attempts: dict[str, Attempt], values: Any, where: str) -> Attempt:
    """The attempt that a line is about, with what the line adds. Raises `UserError` if it was altered."""
    event = values.get("event") if isinstance(values, dict) else None
    kinds = EVENTS.get(str(event))
    if kinds is None or set(values) != {*kinds, "event"}:
        raise UserError(f"{where} is neither the begin nor a beat nor the end of an attempt: {values!r}")
    for name, kind in kinds.items():
        value = values[name]
        if kind is str and not isinstance(value, str):
            raise UserError(f"{where}: {name} is {value!r}, expected a string")
        if kind is float and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(f"{where}: {name} is {value!r}, expected a number")
        if kind is float and not (math.isfinite(value) and value >= 0):
            raise UserError(f"{where}: {name} is {value}, expected 0 or more")
    known = attempts.get(values["attempt"])
    if (known is None) == (event != "begin"):
        why = "begins twice" if known else "never began"
        raise UserError(f"{where}: attempt {values['attempt']!r} {why}: a line is missing or was copied")
    if known is None:
        fields = {name: value for name, value in values.items() if name not in ("attempt", "event")}
        return Attempt(id=values["attempt"], **fields)
    return replace(
        known,
        # The most that was ever recorded: an attempt's time never goes back.
        elapsed_s=max(known.elapsed_s, values["elapsed_s"]),
        utc=values["utc"],
        expected_s=values.get("expected_s", known.expected_s),
        status=values.get("status"),
    )
