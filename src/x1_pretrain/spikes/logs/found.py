"""Spikes in a stream of logged steps: where, of which shape, how they ended, and whether to act.

A log alone names no cause: PaLM's and OLMo's authors needed replays. What it does have is the order of
events (did the gradient norm lead?), the outcome, and which replays would settle the rest.
"""

import itertools
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from x1_pretrain.spikes.logs.episode import (
    ACT_FLAGS,
    ACT_WITHIN,
    CALM_POINTS,
    EVENT_WITHIN_STEPS,
    LR_RISE,
    Episode,
    Spike,
    describe,
)
from x1_pretrain.spikes.logs.monitor import FewMonitor, SpikeScore
from x1_pretrain.spikes.logs.points import Point
from x1_pretrain.spikes.logs.traps import Corrector, norms_are_scaled
from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor

KEPT = 1000  # spikes described; more are counted only


@dataclass(frozen=True)
class Analysis:
    """Everything a log says. Scores are shares of the judged points; None where nothing was judged."""

    format: str
    points: int
    first_step: int
    last_step: int
    stride: int | None
    short: bool  # fewer points than the monitor's window needs
    not_finite: int
    with_grad_norm: int
    spikes: tuple[Spike, ...]
    n_spikes: int
    flagged_share: float | None
    loss_score: float | None
    grad_norm_score: float | None
    traps: Counter[str]


class Analyser:
    """Feed it points in the order of the log; `finish` says what was found."""

    def __init__(self, format_name: str, monitor: SpikeMonitor, corrector: Corrector, short: bool) -> None:
        self.format, self.monitor, self.corrector, self.short = format_name, monitor, corrector, short
        self.losses, self.norms = SpikeScore(), SpikeScore()
        self.n = self.flagged = self.not_finite = self.with_norm = self.n_spikes = 0
        self.first_step = self.last_step = 0
        self.steps_apart: Counter[int] = Counter()
        self.spikes: list[Spike] = []
        self._episode: Episode | None = None
        self._last: Point | None = None
        self._went_back_at: int | None = None
        self._lrs: deque[tuple[int, float]] = deque(maxlen=EVENT_WITHIN_STEPS)

    def add(self, printed: Point) -> None:
        if self._last is not None and printed.run != self._last.run:
            self._close(ended=True)  # another run of the same file
            self.monitor = type(self.monitor)()
            self._lrs.clear()
            self._last = self._went_back_at = None
        point = self.corrector.correct(printed)
        self._notice_events(point)
        self.n += 1
        self.first_step = point.step if self.n == 1 else self.first_step
        self.not_finite += not math.isfinite(point.loss)
        self.with_norm += point.grad_norm is not None
        self.losses.add(point.loss)
        if point.grad_norm is not None:
            self.norms.add(point.grad_norm)
        alarm = self.monitor.observe(point.step, point.loss, point.grad_norm)
        if alarm is not None:
            self.flagged += 1
            self._flag(point, alarm)
        elif self._episode is not None:
            self._episode.calm.append(point.loss)
            if len(self._episode.calm) >= CALM_POINTS:
                self._close(ended=False)
        if point.lr is not None:
            self._lrs.append((point.step, point.lr))
        self._last, self.last_step = printed, point.step

    def finish(self) -> Analysis:
        self._close(ended=True)
        stride = self.steps_apart.most_common(1)[0][0] if self.steps_apart else None
        return Analysis(
            format=self.format,
            points=self.n,
            first_step=self.first_step,
            last_step=self.last_step,
            stride=stride,
            short=self.short,
            not_finite=self.not_finite,
            with_grad_norm=self.with_norm,
            spikes=tuple(self.spikes),
            n_spikes=self.n_spikes,
            flagged_share=self.flagged / self.n if self.n else None,
            loss_score=self.losses.share,
            grad_norm_score=self.norms.share,
            traps=self.corrector.counts,
        )

    def _notice_events(self, point: Point) -> None:
        if self._last is None:
            return
        apart = point.step - self._last.step
        if apart > 0 and len(self.steps_apart) < KEPT:
            self.steps_apart[apart] += 1
        elif apart <= 0:
            self._went_back_at = point.step

    def _events(self, point: Point) -> tuple[str, ...]:
        """What else happened within 50 steps before: a restart, a risen lr."""
        found = []
        back = self._went_back_at
        if back is not None and 0 <= point.step - back <= EVENT_WITHIN_STEPS:
            found.append(f"the run was restarted at step {back}")
        near = [lr for step, lr in self._lrs if 0 <= point.step - step <= EVENT_WITHIN_STEPS and lr > 0]
        if point.lr is not None and near and point.lr > LR_RISE * min(near):
            found.append(f"the lr rose from {min(near):g} to {point.lr:g}")
        return tuple(found)

    def _flag(self, point: Point, alarm: Alarm) -> None:
        if self._episode is None:
            base, sd = self.monitor.level() or (None, 0.0)
            self._episode = Episode(base, sd, self._events(point))
        episode = self._episode
        episode.calm.clear()
        episode.flagged += 1
        episode.first_of.setdefault(alarm.reason, point.step)
        episode.recent.append(self.n)
        if len(episode.recent) == ACT_FLAGS and self.n - episode.recent[0] < ACT_WITHIN:
            episode.densest = ACT_FLAGS
        episode.last_step = point.step
        episode.level_accepted |= episode.flagged >= self.monitor.level_after
        if alarm.reason in ("loss", "loss_low", "nonfinite") and episode.first_loss_index is None:
            episode.first_loss_index = self.n
        if math.isfinite(point.loss) and (episode.peak is None or point.loss > episode.peak.loss):
            episode.peak, episode.peak_index = point, self.n
        norm = point.grad_norm
        if norm is not None and math.isfinite(norm) and norm > (episode.peak_norm or 0.0):
            episode.peak_norm = norm

    def _close(self, ended: bool) -> None:
        episode, self._episode = self._episode, None
        if episode is None:
            return
        self.n_spikes += 1
        if len(self.spikes) < KEPT:
            self.spikes.append(describe(episode, ended))


def analyse(points: Iterable[Point], format_name: str) -> Analysis:
    """Read a log to its end, in memory that does not grow with it."""
    stream: Iterator[Point] = iter(points)
    head = list(itertools.islice(stream, SpikeMonitor().min_values + 1))
    short = len(head) <= SpikeMonitor().min_values
    corrector = Corrector(norms_are_scaled(head))
    analyser = Analyser(format_name, FewMonitor() if short else SpikeMonitor(), corrector, short)
    for point in itertools.chain(head, stream):
        analyser.add(point)
    return analyser.finish()
