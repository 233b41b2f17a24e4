"""What a printed number of a log may not mean: corrections made before anything is judged, and counted.

All of these were met in public logs: the gradient norm times fp16's loss scale, and the norm of an earlier
step repeated after an overflow (bigscience tr8, tr8b); a norm of zero (tr1); steps that go back after a
rewind; lines only every 10 steps.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from x1_pretrain.spikes.logs.points import Point

# Norms before clipping of healthy language models are between 0.01 and 20. A larger median that comes with a
# loss scale is the scaled one.
SCALED_NORM = 100.0
# With fewer digits a norm may well be printed twice in a row.
STALE_DIGITS = 6


def norms_are_scaled(points: Sequence[Point]) -> bool:
    """Whether a log's gradient norms, judged by its first points, still have the loss scale in them."""
    pairs = [
        (p.grad_norm, p.loss_scale)
        for p in points
        if p.grad_norm and math.isfinite(p.grad_norm) and p.loss_scale and p.loss_scale > 1
    ]
    return bool(pairs) and statistics.median(norm for norm, _ in pairs) >= SCALED_NORM


@dataclass
class Corrector:
    """Points as printed in, points as meant out; `counts` says what was met."""

    scaled_norms: bool
    counts: Counter[str] = field(default_factory=Counter)
    _last: Point | None = None

    def correct(self, point: Point) -> Point:
        last, self._last = self._last, point
        norm = point.grad_norm
        if norm == 0.0:
            self.counts["zero_norm"] += 1
            norm = None
        elif norm is not None and last is not None and norm == last.grad_norm and _digits(norm):
            self.counts["stale_norm"] += 1
            norm = None
        elif norm is not None and self.scaled_norms and point.loss_scale:
            self.counts["scaled_norm"] += 1
            norm /= point.loss_scale
        if point.skipped:
            self.counts["skipped"] += 1
        if last is not None and point.run == last.run and point.step <= last.step:
            self.counts["backwards"] += 1
        return point._replace(grad_norm=norm)


def _digits(norm: float) -> bool:
    return len(f"{norm:.9g}".replace(".", "").strip("0")) >= STALE_DIGITS


SENTENCES = {
    "scaled_norm": "{n} gradient norms were printed times the loss scale and have been divided by it",
    "stale_norm": "{n} gradient norms repeat the line before to the last digit (an overflow); left out",
    "zero_norm": "{n} gradient norms of exactly zero say nothing; left out",
    "skipped": "{n} lines say that their update was skipped; their loss is still the batch's",
    "backwards": "{n} times the steps go back (a restart or rewind); what follows is judged as going on",
}


def notes(counts: Counter[str], stride: int | None, format_name: str) -> list[str]:
    """What was met, in sentences."""
    said = [SENTENCES[name].format(n=n) for name, n in counts.items()]
    if stride is not None and stride > 1:
        said.append(f"one line per {stride} steps: what leads and what follows is not resolved below that")
    if format_name == "modded-nanogpt":
        said.append("the loss may be one rank's last micro-batch, not the mean of the batch")
    return said
