"""The sum before a run: hours from FLOPs, dollars from hours, and what would fit if it does not."""

import dataclasses
from dataclasses import dataclass
from datetime import UTC, date, datetime

from x1_pretrain import paths
from x1_pretrain.config import Storage
from x1_pretrain.deliverables.files import read_json
from x1_pretrain.economics.cost import SECONDS_PER_HOUR, estimate_run, positive
from x1_pretrain.economics.estimate import Work
from x1_pretrain.economics.hardware import find_gpu
from x1_pretrain.economics.prices import PRICES
from x1_pretrain.errors import UserError
from x1_pretrain.study import Study

MARGIN = 0.10
OLD_DAYS = 90  # a price read longer ago than that is said to be old
HOURS_PER_MONTH = 730.0


def duration_text(hours: float) -> str:
    return f"{hours:.2f} h" if hours >= 1 else f"{hours * 60:.2f} min"


def age_text(read: str, today: date | None = None) -> str:
    """How old a price is, and whether that is too old, or the clock is wrong."""
    days = ((today or datetime.now(UTC).date()) - date.fromisoformat(read)).days
    if days < 0:
        return f"{read}, in the future by this machine's clock: one of the two is wrong"
    return f"{read}, {days} days ago" + ("; look it up again" if days > OLD_DAYS else "")


@dataclass(frozen=True)
class Peak:
    """Peak FLOP/s to divide by, None where nobody knows, and where it is from."""

    flops_per_s: float | None
    source: str


@dataclass(frozen=True)
class Preflight:
    """The sum before a run. Hours and dollars are None only when the peak is unknown and free."""

    runs: tuple[Work, ...]
    peak: Peak
    mfu: float
    price_usd_per_hour: float
    price_source: str
    storage: Storage
    spent_usd: float
    committed_usd: float  # what runs that are under way still expect to cost
    cap_usd: float

    def _compute_hours(self, flops: float) -> float:
        if self.peak.flops_per_s is None or not flops:  # nothing left to evaluate, say
            return 0.0
        return estimate_run(flops, self.peak.flops_per_s, self.mfu, self.price_usd_per_hour).hours

    @property
    def training_hours(self) -> float:
        return self._compute_hours(sum(run.training_flops for run in self.runs))

    @property
    def evaluation_hours(self) -> float:
        return self._compute_hours(sum(run.evaluation_flops for run in self.runs))

    @property
    def fixed_hours(self) -> float:
        """Start-up and checkpoints."""
        return sum(run.fixed_s for run in self.runs) / SECONDS_PER_HOUR

    @property
    def hours(self) -> float | None:
        if self.peak.flops_per_s is None:
            return None
        return self.training_hours + self.evaluation_hours + self.fixed_hours

    @property
    def compute_usd(self) -> float:
        return (self.hours or 0.0) * self.price_usd_per_hour

    @property
    def storage_usd(self) -> float:
        month_usd = self.storage.gb * self.storage.usd_per_gb_month
        return month_usd * (self.hours or 0.0) / HOURS_PER_MONTH

    @property
    def egress_usd(self) -> float:
        return self.storage.egress_gb * self.storage.egress_usd_per_gb

    @property
    def new_usd(self) -> float:
        """What the runs cost, the margin included."""
        return (self.compute_usd + self.storage_usd + self.egress_usd) * (1 + MARGIN)

    @property
    def total_usd(self) -> float:
        return self.new_usd + self.spent_usd + self.committed_usd

    @property
    def fits(self) -> bool:
        return self.new_usd == 0 or self.total_usd <= self.cap_usd

    def lines(self) -> list[str]:
        """The sum line by line; above the cap, what would fit instead."""
        known = self.hours is not None
        lines = []
        for run in self.runs:
            took = duration_text(self._compute_hours(run.flops) + run.fixed_s / SECONDS_PER_HOUR)
            took = took if known else "unknown time"
            lines.append(f"{run.name:<14}{run.tokens:.3e} tokens, {run.flops:.3e} FLOP, {took}")
        parts = (("training", self.training_hours), ("evaluation", self.evaluation_hours))
        for name, hours in parts:
            took = duration_text(hours) if known else "unknown time"
            lines.append(f"{name:<14}{took} at {self.mfu:.0%} MFU of {self.peak.source}")
        held = self.storage
        return [
            *lines,
            f"{'fixed':<14}{duration_text(self.fixed_hours)} of start-up and checkpoints (assumed)",
            f"{'price':<14}{self.price_usd_per_hour:.4g} $/h ({self.price_source})",
            f"{'compute cost':<14}{self.compute_usd:.2f} $",
            f"{'storage':<14}{self.storage_usd:.2f} $ ({held.gb:g} GB, {held.usd_per_gb_month:g} $/GB/month)",
            f"{'egress':<14}{self.egress_usd:.2f} $ ({held.egress_gb:g} GB, {held.egress_usd_per_gb:g} $/GB; "
            f"{held.source}, {age_text(held.date)})",
            f"{'margin ' + format(MARGIN, '.0%'):<14}{self.new_usd * MARGIN / (1 + MARGIN):.2f} $",
            f"{'already spent':<14}{self.spent_usd:.2f} $ (ledger)",
            f"{'committed':<14}{self.committed_usd:.2f} $ (runs under way)",
            f"{'total':<14}{self.total_usd:.2f} $",
            f"{'cap':<14}{self.cap_usd:.2f} $",
            f"{'verdict':<14}{'fits' if self.fits else 'above the cap, refused'}",
            *([] if self.fits else self.instead()),
        ]

    def instead(self) -> list[str]:
        """What would fit under the cap: fewer tokens, a lower price, a better MFU, another card."""
        left_usd = self.cap_usd - self.spent_usd - self.committed_usd
        fixed_usd = self.fixed_hours * self.price_usd_per_hour + self.egress_usd
        compute_usd = self.new_usd / (1 + MARGIN) - fixed_usd
        share = (left_usd / (1 + MARGIN) - fixed_usd) / compute_usd if compute_usd > 0 else 0.0
        if share <= 0:
            return [f"what fits: nothing; raise money.cap_usd to {self.total_usd:.2f} $"]
        tokens = sum(run.tokens for run in self.runs) * share
        lines = [f"what fits: {share:.1%} of the compute, {tokens:.3e} tokens (lower models.*.flops)"]
        hourly = (left_usd / (1 + MARGIN) - self.egress_usd) * self.price_usd_per_hour
        lines.append(
            f"or at most {hourly / (self.compute_usd + self.storage_usd):.3f} $/h (spot, another provider)"
        )
        if self.mfu / share <= 1:
            lines.append(f"or an MFU of at least {self.mfu / share:.1%} on the same card")
        for price in sorted(PRICES, key=lambda price: price.usd_per_hour):
            found = find_gpu(price.gpu).gpu
            if found is None or found.peak_bf16_flops is None or self.peak.flops_per_s is None:
                continue
            peak = Peak(found.peak_bf16_flops.value, found.name)
            other = dataclasses.replace(self, peak=peak, price_usd_per_hour=price.usd_per_hour)
            if other.fits:
                kind = "spot" if price.spot else "on demand"
                lines.append(
                    f"or one {price.gpu} {kind} at {price.usd_per_hour:.2f} $/h ({price.source}, "
                    f"{age_text(price.date)}): {other.hours:.2f} h, {other.total_usd:.2f} $"
                )
        return [*lines, f"or a cap of {self.total_usd:.2f} $"]


def peak_of(study: Study, gpu: str | None, peak_flops: float | None) -> Peak:
    """The peak given, else the named GPU's, else what a run on this CPU measured.

    Raises `UserError` for an unknown GPU or a peak that is not positive.
    """
    if peak_flops is not None:
        return Peak(positive(peak_flops, "--peak-flops"), f"{peak_flops:.4g} FLOP/s (given)")
    if gpu is not None:
        found = find_gpu(gpu)
        if found.gpu is None or found.gpu.peak_bf16_flops is None:
            raise UserError(f"--gpu: {found.reason or gpu + ' has no known peak; give --peak-flops'}")
        peak = found.gpu.peak_bf16_flops
        return Peak(peak.value, f"{peak.value:.4g} FLOP/s ({found.gpu.name}, {peak.source}, {peak.date})")
    measured = paths.MEASURED / "train.json"
    if study.profile.device.kind == "cpu" and measured.is_file():
        value = read_json(measured).get("measured_peak_flops")
        if value is not None:
            return Peak(
                positive(value, f"{measured}: measured_peak_flops"),
                f"{value:.4g} FLOP/s (measured)",
            )
    return Peak(None, "an unknown peak (give --gpu or --peak-flops)")
