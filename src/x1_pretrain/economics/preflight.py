"""The sum before a run: hours from FLOPs, dollars from hours, and what would fit if it does not."""

from dataclasses import dataclass

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json
from x1_pretrain.economics.cost import estimate_run, positive
from x1_pretrain.economics.estimate import Work
from x1_pretrain.economics.hardware import GPUS, find_gpu
from x1_pretrain.errors import UserError
from x1_pretrain.study import Study

MARGIN = 0.10


def _duration(hours: float) -> str:
    return f"{hours:.2f} h" if hours >= 1 else f"{hours * 60:.2f} min"


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
    spent_usd: float
    cap_usd: float

    @property
    def hours(self) -> float | None:
        if self.peak.flops_per_s is None:
            return None
        flops = sum(run.flops for run in self.runs)
        return estimate_run(flops, self.peak.flops_per_s, self.mfu, self.price_usd_per_hour).hours

    @property
    def compute_usd(self) -> float:
        return 0.0 if self.hours is None else self.hours * self.price_usd_per_hour

    @property
    def total_usd(self) -> float:
        return self.compute_usd * (1 + MARGIN) + self.spent_usd

    @property
    def fits(self) -> bool:
        return self.compute_usd == 0 or self.total_usd <= self.cap_usd

    def lines(self) -> list[str]:
        """The sum line by line; above the cap, what would fit instead."""
        lines = []
        for run in self.runs:
            share = "unknown time"
            if self.hours is not None:
                share = _duration(self.hours * run.flops / sum(r.flops for r in self.runs))
            lines.append(f"{run.name:<14}{run.tokens:.3e} tokens, {run.flops:.3e} FLOP, {share}")
        hours = "unknown time" if self.hours is None else _duration(self.hours)
        lines += [
            f"{'compute':<14}{hours} at {self.mfu:.0%} MFU of {self.peak.source}",
            f"{'price':<14}{self.price_usd_per_hour:.4g} $/h ({self.price_source})",
            f"{'compute cost':<14}{self.compute_usd:.2f} $",
            f"{'margin ' + format(MARGIN, '.0%'):<14}{self.compute_usd * MARGIN:.2f} $",
            f"{'already spent':<14}{self.spent_usd:.2f} $ (ledger)",
            f"{'total':<14}{self.total_usd:.2f} $",
            f"{'cap':<14}{self.cap_usd:.2f} $",
        ]
        if self.fits:
            return [*lines, f"{'verdict':<14}fits"]
        return [*lines, f"{'verdict':<14}above the cap, refused", *self._instead()]

    def _instead(self) -> list[str]:
        left_usd = self.cap_usd - self.spent_usd
        if left_usd <= 0:
            return ["what fits: nothing; the cap is spent, raise money.cap_usd to go on"]
        share = left_usd / (self.compute_usd * (1 + MARGIN))
        tokens = sum(run.tokens for run in self.runs) * share
        lines = [
            f"what fits: {share:.1%} of the compute, {tokens:.3e} tokens (lower models.*.flops)",
            f"or at most {self.price_usd_per_hour * share:.3f} $/h (spot, another provider)",
        ]
        if self.mfu / share <= 1:
            lines.append(f"or an MFU of at least {self.mfu / share:.1%} on the same card")
        if self.peak.flops_per_s is not None:
            needed = self.peak.flops_per_s / share
            fast = [g.name for g in GPUS if g.peak_bf16_flops and g.peak_bf16_flops.value >= needed]
            if fast:
                lines.append(f"or, at the same price, one of {', '.join(fast)}")
        return lines


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
