"""The spike monitor: tells, step by step, whether a training loss or gradient norm is out of line.

It only watches; what to do about an alarm is decided elsewhere. Two defects of known monitors are
ruled out by construction: a NaN never enters the window, so it cannot blind what follows, and a
flagged value never does either, so a spike cannot widen the spread and mask the next one.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["nonfinite", "loss", "loss_low", "grad_norm", "update_rms"]

# A normal distribution's sd is 1.4826 times its median absolute deviation.
SD_PER_MAD = 1.4826
# Spread below which a difference is rounding, not news: nats, and natural log of the gradient norm
# (0.1 is 10%; with the usual threshold of 6 the norm must grow by 1.8 times).
LOSS_SD_FLOOR_NATS = 1e-3
LOG_GRAD_NORM_SD_FLOOR = 0.1
# RMS of an update over its lr. Measured: at most 0.63 where the second moment is in good order, 1.4 to 10.7
# where it is stale, which a loss may show late or not at all.
ACTING_UPDATE_RMS = 2.0


@dataclass(frozen=True)
class Alarm:
    """One flagged step.

    `value` is the loss in nats, the gradient norm for reason `grad_norm`, or the largest update RMS
    over its lr for `update_rms`, which is judged by a limit and not by a window; it may be NaN or
    infinite for reason `nonfinite`, where nothing else is known. `z`, `median` and `sd` describe
    the window it was judged against (for `grad_norm`: z and sd on the log, median in units of the
    norm).
    """

    step: int
    reason: Reason
    value: float
    z: float | None
    median: float | None
    sd: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; a value that is not finite becomes null."""
        finite = math.isfinite(self.value)
        return {
            "step": self.step,
            "reason": self.reason,
            "value": self.value if finite else None,
            "z": self.z,
            "median": self.median,
            "sd": self.sd,
        }


def robust_scale(values: Sequence[float], sd_floor: float) -> tuple[float, float]:
    """Median, and sd estimated from the median absolute deviation, at least `sd_floor`.

    Raises `statistics.StatisticsError` if `values` is empty.
    """
    median = statistics.median(values)
    deviation = statistics.median([abs(value - median) for value in values])
    return median, max(SD_PER_MAD * deviation, sd_floor)


class SpikeMonitor:
    """Robust outlier detection over the last `window` values that were not flagged themselves.

    Silent until `min_values` are known. A loss alarm needs both `threshold` (in robust sd) and
    `min_rise_nats`; a loss as far below is reported as `loss_low`. The gradient norm (before
    clipping) is judged on its logarithm, upwards only. When `level_after` steps in a row were
    flagged (`min_values` unless given), training has moved to a new level: those steps become the
    window, and the monitor is not left shouting for ever. Its answers are a pure function of what
    it was shown.
    """

    def __init__(
        self,
        window: int = 128,
        min_values: int = 64,
        threshold: float = 6.0,
        min_rise_nats: float = 0.3,
        level_after: int | None = None,
    ) -> None:
        if not 2 <= min_values <= window:
            raise ValueError(f"2 <= min_values <= window must hold: {min_values}, {window}")
        if threshold <= 0 or min_rise_nats < 0:
            raise ValueError(f"threshold {threshold} or min_rise_nats {min_rise_nats} is too small")
        self.window = window
        self.min_values = min_values
        self.threshold = threshold
        self.min_rise_nats = min_rise_nats
        self.level_after = level_after or min_values
        self._losses: deque[float] = deque(maxlen=window)
        self._log_grad_norms: deque[float] = deque(maxlen=window)
        self._flagged_losses: list[float] = []  # of the current run of flagged steps
        self._flagged_log_grad_norms: list[float] = []

    def observe(
        self, step: int, loss: float, grad_norm: float | None = None, update_rms: float | None = None
    ) -> Alarm | None:
        """Judge one optimizer step, then remember it unless it was flagged.

        `loss` in nats per token, `grad_norm` before clipping (None: not logged). A gradient norm
        of zero says nothing about scale (mixed-precision overflows print it) and is passed over.
        """
        for value in (loss, grad_norm):
            if value is not None and not math.isfinite(value):
                return Alarm(step, "nonfinite", value, None, None, None)
        log_grad_norm = math.log(grad_norm) if grad_norm is not None and grad_norm > 0 else None
        alarm = self._judge_loss(step, loss)
        if alarm is None and log_grad_norm is not None:
            alarm = self._judge_grad_norm(step, log_grad_norm)
        if alarm is None and update_rms is not None and not update_rms < ACTING_UPDATE_RMS:
            alarm = Alarm(step, "update_rms", update_rms, None, None, None)
        self._remember(loss, log_grad_norm, flagged=alarm is not None)
        return alarm

    def _judge_loss(self, step: int, loss: float) -> Alarm | None:
        if len(self._losses) < self.min_values:
            return None
        if abs(loss - statistics.median(self._losses)) <= self.min_rise_nats:
            return None  # most steps: their spread need not be known
        median, sd = robust_scale(self._losses, LOSS_SD_FLOOR_NATS)
        z = (loss - median) / sd
        if abs(z) <= self.threshold:
            return None
        return Alarm(step, "loss" if z > 0 else "loss_low", loss, z, median, sd)

    def _judge_grad_norm(self, step: int, log_grad_norm: float) -> Alarm | None:
        if len(self._log_grad_norms) < self.min_values:
            return None
        rise = log_grad_norm - statistics.median(self._log_grad_norms)
        if rise <= self.threshold * LOG_GRAD_NORM_SD_FLOOR:
            return None
        median, sd = robust_scale(self._log_grad_norms, LOG_GRAD_NORM_SD_FLOOR)
        z = (log_grad_norm - median) / sd
        if z <= self.threshold:
            return None
        return Alarm(step, "grad_norm", math.exp(log_grad_norm), z, math.exp(median), sd)

    def _remember(self, loss: float, log_grad_norm: float | None, flagged: bool) -> None:
        if not flagged:
            self._flagged_losses.clear()
            self._flagged_log_grad_norms.clear()
            self._losses.append(loss)
            if log_grad_norm is not None:
                self._log_grad_norms.append(log_grad_norm)
            return
        self._flagged_losses.append(loss)
        if log_grad_norm is not None:
            self._flagged_log_grad_norms.append(log_grad_norm)
        if len(self._flagged_losses) >= self.level_after:
            self._losses = deque(self._flagged_losses, maxlen=self.window)
            self._log_grad_norms = deque(self._flagged_log_grad_norms, maxlen=self.window)
            self._flagged_losses, self._flagged_log_grad_norms = [], []

    def flags(self, loss: float, grad_norm: float | None = None) -> bool:
        """Whether `observe` would raise an alarm, without remembering anything."""
        if not math.isfinite(loss) or (grad_norm is not None and not math.isfinite(grad_norm)):
            return True
        if self._judge_loss(0, loss) is not None:
            return True
        return bool(grad_norm) and self._judge_grad_norm(0, math.log(grad_norm)) is not None

    def level(self) -> tuple[float, float] | None:
        """Median and robust sd of the losses in the window, in nats; None while too few are known."""
        if len(self._losses) < self.min_values:
            return None
        return robust_scale(self._losses, LOSS_SD_FLOOR_NATS)

    def state_dict(self) -> dict[str, Any]:
        """All of the state as JSON values; a JSON round trip restores it exactly."""
        return {
            **self._settings(),
            "losses": list(self._losses),
            "log_grad_norms": list(self._log_grad_norms),
            "flagged_losses": list(self._flagged_losses),
            "flagged_log_grad_norms": list(self._flagged_log_grad_norms),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`. Raises `ValueError` if its settings are not this one's."""
        settings = {key: state.get(key) for key in self._settings()}
        if settings != self._settings():
            raise ValueError(f"spike monitor state has settings {settings}, not {self._settings()}")
        self._losses = deque(state["losses"], maxlen=self.window)
        self._log_grad_norms = deque(state["log_grad_norms"], maxlen=self.window)
        self._flagged_losses = list(state["flagged_losses"])
        self._flagged_log_grad_norms = list(state["flagged_log_grad_norms"])

    def _settings(self) -> dict[str, Any]:
        return {
            "window": self.window,
            "min_values": self.min_values,
            "threshold": self.threshold,
            "min_rise_nats": self.min_rise_nats,
            "level_after": self.level_after,
        }
