"""Dollars from hours, hours from FLOPs, and the memory and price of a served token.

A missing price is an error and a price of nought is a price: the two must never look alike.
"""

import math
from dataclasses import dataclass

from x1_pretrain.errors import UserError

SECONDS_PER_HOUR = 3600.0


def checked_price(price_usd_per_hour: float | None, where: str = "price_usd_per_hour") -> float:
    """The price in $/h. Raises `UserError` if it is missing, not a number, infinite or negative."""
    if price_usd_per_hour is None or isinstance(price_usd_per_hour, bool | str):
        raise UserError(f"{where}: {price_usd_per_hour!r} is not a price; give dollars per hour, 0 or more")
    if not math.isfinite(price_usd_per_hour) or price_usd_per_hour < 0:
        raise UserError(f"{where}: {price_usd_per_hour} is not a price; give dollars per hour, 0 or more")
    return float(price_usd_per_hour)


def positive(value: float, where: str) -> float:
    """`value` if it is finite and above 0. Raises `UserError` naming `where`."""
    if not math.isfinite(value) or value <= 0:
        raise UserError(f"{where}: {value} must be a finite number above 0")
    return float(value)


def usd_for(elapsed_s: float, price_usd_per_hour: float | None) -> float:
    """Dollars for seconds. Raises `UserError` for a bad price or a negative duration."""
    price = checked_price(price_usd_per_hour)
    if not math.isfinite(elapsed_s) or elapsed_s < 0:
        raise UserError(f"elapsed_s: {elapsed_s} is not a duration; it must be 0 or more seconds")
    return elapsed_s * price / SECONDS_PER_HOUR


@dataclass(frozen=True)
class RunEstimate:
    """What a run should take. `hours` and dollars follow from FLOPs, peak FLOP/s, MFU and price."""

    flops: float
    peak_flops: float
    mfu: float
    price_usd_per_hour: float

    @property
    def hours(self) -> float:
        return self.flops / (self.peak_flops * self.mfu) / SECONDS_PER_HOUR

    @property
    def usd(self) -> float:
        return self.hours * self.price_usd_per_hour


def estimate_run(
    flops: float, peak_flops: float, mfu: float, price_usd_per_hour: float | None
) -> RunEstimate:
    """Hours and dollars of `flops` counted FLOPs. Raises `UserError` for an impossible value."""
    if not 0 < mfu <= 1:
        raise UserError(f"mfu: {mfu} must be above 0 and at most 1")
    return RunEstimate(
        flops=positive(flops, "flops"),
        peak_flops=positive(peak_flops, "peak_flops"),
        mfu=mfu,
        price_usd_per_hour=checked_price(price_usd_per_hour),
    )


def usd_per_million_tokens(price_usd_per_hour: float | None, tokens_per_s: float) -> float:
    """$/Mtok = price per hour / (3600 * tokens per second) * 1e6. Raises `UserError`."""
    price = checked_price(price_usd_per_hour)
    return price / (SECONDS_PER_HOUR * positive(tokens_per_s, "tokens_per_s")) * 1e6


def kv_cache_bytes(
    n_layer: int, n_kv_head: int, head_size: int, bytes_per_value: int, tokens: int, batch: int = 1
) -> int:
    """Bytes of keys and values: 2 * n_layer * n_kv_head * head_size * bytes * tokens * batch."""
    return 2 * n_layer * n_kv_head * head_size * bytes_per_value * tokens * batch
