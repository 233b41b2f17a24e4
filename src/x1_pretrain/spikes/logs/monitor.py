"""The two judges of a log beside the trainer's monitor: one for short logs, and OLMo's score."""

import math
import statistics
from collections import deque

from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor

# A log with fewer steps than the monitor's window needs has no spread to speak of. There a loss 0.3 nats
# above the median of the steps before stands out, or a gradient norm of three times theirs.
FEW_VALUES, FEW_RISE_NATS, FEW_NORM_FACTOR = 2, 0.3, 3.0
SCORE_WINDOW, SCORE_SD = 1000, 7.0  # OLMo 2's spike score


class FewMonitor(SpikeMonitor):
    """The monitor for logs shorter than its window: fixed limits in place of the unknown spread."""

    def __init__(self) -> None:
        super().__init__(min_values=FEW_VALUES, level_after=SpikeMonitor().min_values)

    def _judge_loss(self, step: int, loss: float) -> Alarm | None:
        if (level := self.level()) is None or abs(loss - level[0]) <= FEW_RISE_NATS:
            return None
        reason = "loss" if loss > level[0] else "loss_low"
        return Alarm(step, reason, loss, None, level[0], None)

    def _judge_grad_norm(self, step: int, log_grad_norm: float) -> Alarm | None:
        if len(self._log_grad_norms) < self.min_values:
            return None
        median = math.exp(statistics.median(self._log_grad_norms))
        if math.exp(log_grad_norm) <= FEW_NORM_FACTOR * median:
            return None
        return Alarm(step, "grad_norm", math.exp(log_grad_norm), None, median, None)


class SpikeScore:
    """OLMo 2's spike score: the share of values at least 7 sd above the mean of the last 1000.

    A value that is not finite counts as a spike and enters no mean. Silent until 128 are known.
    """

    def __init__(self) -> None:
        self._window: deque[float] = deque()
        self._sum = self._squares = 0.0
        self._origin: float | None = None  # subtracted first, for precision
        self.judged = self.spikes = 0

    def add(self, value: float) -> None:
        if not math.isfinite(value):
            self.judged, self.spikes = self.judged + 1, self.spikes + 1
            return
        self._origin = value if self._origin is None else self._origin
        shifted, n = value - self._origin, len(self._window)
        if n >= 128:
            mean = self._sum / n
            sd = math.sqrt(max(self._squares / n - mean * mean, 1e-12))
            self.judged += 1
            self.spikes += abs(shifted - mean) >= SCORE_SD * sd
        self._window.append(shifted)
        self._sum, self._squares = self._sum + shifted, self._squares + shifted * shifted
        if n >= SCORE_WINDOW:
            old = self._window.popleft()
            self._sum, self._squares = self._sum - old, self._squares - old * old

    @property
    def share(self) -> float | None:
        return self.spikes / self.judged if self.judged else None
