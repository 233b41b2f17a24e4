"""What an hour of a card costs, where that was read and when. A card without a dated price has none here.

Prices differ by a factor of two between providers and change within weeks: they say what is plausible,
and a profile's own price (`money.price_usd_per_hour`) is what counts.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Price:
    """Dollars per hour of one card; `gpu` is its name in hardware.py."""

    gpu: str
    usd_per_hour: float
    spot: bool
    source: str
    date: str


_LAMBDA = "Lambda, as techbytes lists it"
_RUNPOD = "RunPod, as deploybase lists it"
_CATALOG = "Lambda in SkyPilot's catalogue v8, commit 0f407038"

PRICES: tuple[Price, ...] = (
    Price("A100 40GB", 1.48, False, _LAMBDA, "2026-05-07"),
    Price("A100 80GB SXM", 2.45, False, _RUNPOD, "2026-03-01"),
    Price("A100 80GB SXM", 1.39, True, _RUNPOD, "2026-03-01"),
    Price("A100 80GB PCIe", 2.10, False, _RUNPOD, "2026-03-01"),
    Price("A100 80GB PCIe", 1.19, True, _RUNPOD, "2026-03-01"),
    Price("H100 PCIe", 2.86, False, _LAMBDA, "2026-05-07"),
    Price("H100 SXM", 3.78, False, _LAMBDA, "2026-05-07"),
    Price("B200", 6.99, False, _CATALOG, "2026-11-30"),
)


def price_of(gpu: str, spot: bool) -> Price | None:
    """The lowest dated price of a card, or None where there is none."""
    known = [price for price in PRICES if (price.gpu, price.spot) == (gpu, spot)]
    return min(known, key=lambda price: price.usd_per_hour, default=None)
