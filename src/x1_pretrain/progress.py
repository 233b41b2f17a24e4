"""Progress of a run: a bar with the time left in a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 15.0


class ProgressReport:
    """`with ProgressReport(run_id, total) as report: report.step(done, text)`."""

    def __init__(self, run_id: str, total: int, done: int = 0) -> None:
        self.run_id, self.total, self.first = run_id, total, done
        self.started = self.printed = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> "ProgressReport":
        if sys.stdout.isatty():
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
            )
            self.bar.start()
            self.task = self.bar.add_task(self.run_id, total=self.total, completed=self.first)
        return self

    def step(self, done: int, text: str) -> None:
        """`done` of `total` steps are done; `text` says how it goes."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, description=f"{self.run_id} {text}")
            return
        now = time.monotonic()
        if now - self.printed >= LINE_EVERY_S or done == self.total:
            self.printed = now
            left_s = (now - self.started) * (self.total - done) / max(1, done - self.first)
            print(f"{self.run_id} step {done}/{self.total} {text}, {left_s:.0f} s left", flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
