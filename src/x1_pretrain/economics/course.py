"""The course's table of costs: a day of training, its data, the scaling triple and a buffer, at a price.

26 + 3 + 13 + 5 = 47 dollars under a cap of 50 at 1.10 $/h. Where the price is higher the plan is refused,
and what would fit is said: the course's own second plan has the triple in 2 hours instead of 12.
"""

from dataclasses import dataclass

DAY_H, TRIPLE_H, SHORT_TRIPLE_H = 24.0, 12.0, 2.0
BUFFER = 0.10  # of the cap


@dataclass(frozen=True)
class CourseTable:
    """The four lines of the table, in dollars."""

    price_usd_per_hour: float
    egress_usd: float
    cap_usd: float
    triple_h: float = TRIPLE_H

    @property
    def day_usd(self) -> float:
        return DAY_H * self.price_usd_per_hour

    @property
    def triple_usd(self) -> float:
        return self.triple_h * self.price_usd_per_hour

    @property
    def buffer_usd(self) -> float:
        return BUFFER * self.cap_usd

    @property
    def total_usd(self) -> float:
        return self.day_usd + self.egress_usd + self.triple_usd + self.buffer_usd

    @property
    def fits(self) -> bool:
        return self.total_usd <= self.cap_usd

    @property
    def most_usd_per_hour(self) -> float:
        """The highest price at which the table fits."""
        return (self.cap_usd - self.buffer_usd - self.egress_usd) / (DAY_H + self.triple_h)

    def lines(self) -> list[str]:
        """The table; above the cap, how to plan again."""
        price = f"{self.price_usd_per_hour:.4g} $/h"
        lines = [
            "the course's table",
            f"  {'one day':<12}{self.day_usd:.0f} $ ({DAY_H:g} h at {price})",
            f"  {'its data':<12}{self.egress_usd:.0f} $ (storage and egress)",
            f"  {'triple':<12}{self.triple_usd:.0f} $ ({self.triple_h:g} h at {price})",
            f"  {'buffer':<12}{self.buffer_usd:.0f} $ ({BUFFER:.0%} of the cap)",
            f"  {'total':<12}{self.total_usd:.2f} $ of {self.cap_usd:.2f} $: "
            + ("fits" if self.fits else "refused"),
        ]
        if self.fits:
            return lines
        short = CourseTable(self.price_usd_per_hour, self.egress_usd, self.cap_usd, SHORT_TRIPLE_H)
        left_usd = self.cap_usd - self.buffer_usd - self.egress_usd
        hours = left_usd / self.price_usd_per_hour - SHORT_TRIPLE_H
        again = [
            f"  plan again: at most {self.most_usd_per_hour:.3f} $/h for this table",
            f"  or the triple in {SHORT_TRIPLE_H:g} h: {short.total_usd:.2f} $, "
            + ("fits" if short.fits else f"above the cap too, at most {short.most_usd_per_hour:.3f} $/h"),
        ]
        if hours > 0 and not short.fits:
            again.append(f"  or that and a run of {hours:.1f} h instead of {DAY_H:g}")
        return [*lines, *again]
