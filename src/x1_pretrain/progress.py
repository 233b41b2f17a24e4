"""Progress of a run: a bar with the time left in a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 15.0


class ProgressReport:
    """`with ProgressReport(run_id, total) as report: report.step(done, text)`.

    The time left is reckoned from the second step on: the first one compiles.
    """

    def __init__(self, run_id: str, total: int, done: int = 0) -> None:
        self.run_id, self.total, self.done_before = run_id, total, done
        self.first: tuple[float, int] | None = None  # when the first step was over, and its number
        self.printed = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> "ProgressReport":
        if sys.stdout.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            self.bar = Progress(*columns, TimeRemainingColumn())
            self.bar.start()
            self.task = self.bar.add_task(self.run_id, total=self.total, completed=self.done_before)
        return self

    def step(self, done: int, text: str) -> None:
        """`done` of `total` steps are done; `text` says how it goes."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, description=f"{self.run_id} {text}")
            return
        now = time.monotonic()
        if self.first is None:
            self.first = (now, done)
        if now - self.printed >= LINE_EVERY_S or done == self.total:
            self.printed = now
            print(f"{self.run_id} step {done}/{self.total} {text}{self._time_left(now, done)}", flush=True)

    def _time_left(self, now: float, done: int) -> str:
        since, number = self.first or (now, done)
        if done <= number:
            return ""
        return f", {(now - since) * (self.total - done) / (done - number):.0f} s left"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
