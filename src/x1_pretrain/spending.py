"""A process's meter: what its work costs as it goes, in the ledger of the whole project, against the cap.

A thread beats into the ledger, so that the time of a process that is killed is paid too. It touches no
number of a training; it only writes a line now and then. The clock counts from the start of the machine,
suspended time included, and nobody can set it back.
"""

import fcntl
import functools
import math
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TextIO

from x1_pretrain import paths
from x1_pretrain.config import Money
from x1_pretrain.economics.cost import SECONDS_PER_HOUR
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.economics.ledger_lines import Attempt
from x1_pretrain.errors import UserError
from x1_pretrain.study import load_study

BEAT_S = 10.0
LATE_S = 5.0  # a beat may come so much later: another thread compiles, or the disk is slow
BUDGET_EXHAUSTED = 4  # exit status where the cap ended the work; a run's checkpoint is valid
DEAD_MAN = 5  # exit status of a process that made no progress
STOP_TIMEOUT_S = 120.0
LONGEST_IMPORT_S = 3600.0

P = ParamSpec("P")


def now_s() -> float:
    """Seconds since the machine started. Monotonic, and goes on while it is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start_s() -> float:
    """When this process started, by the clock of `now_s`: its imports are paid time too.

    Now, where the system gives no time that can be: imports take no hour.
    """
    after_name, now = Path("/proc/self/stat").read_text().rpartition(")")[2].split(), now_s()
    started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return started if now - LONGEST_IMPORT_S <= started <= now else now


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Spending:
    """`with Spending(stage, run_id, money) as spending:`; what happens inside is charged, whatever ends it.

    `since_s` is when the work began, by `now_s`. Entering raises `UserError` for a ledger that is altered,
    another project's or cannot be written.
    """

    def __init__(self, stage: str, run_id: str, money: Money, since_s: float | None = None) -> None:
        self.stage, self.run_id, self.money = stage, run_id, money
        self.since_s = now_s() if since_s is None else since_s
        self.id = uuid.uuid4().hex
        self.ledger = Ledger(paths.ledger(), money.project)
        self.status = "failed"  # unless the work says otherwise
        self._dead: set[str] = set()
        self.longest_s = 0.0  # between two checks: a step, with an evaluation and a checkpoint
        self.checked_s: float | None = None  # of the last check; None before the first
        self._failure: UserError | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)

    # ------------------------------------------------------------ what is known

    @property
    def price(self) -> float:
        return self.money.price_usd_per_hour

    def elapsed_s(self) -> float:
        return max(0.0, now_s() - self.since_s)

    def others_usd(self) -> float:
        """Dollars charged to everything but this attempt."""
        return math.fsum(attempt.charged_usd for attempt in self.ledger.attempts() if attempt.id != self.id)

    def others_alive(self) -> list[Attempt]:
        """The attempts of other processes that run now."""
        unsure = (a for a in self.ledger.attempts() if a.status is None and a.id not in self._dead)
        others = [attempt for attempt in unsure if attempt.id != self.id]
        living = [attempt for attempt in others if alive(attempt)]
        self._dead |= {attempt.id for attempt in others} - {attempt.id for attempt in living}
        return living

    def left_usd(self) -> float:
        """Dollars left under the cap if every process were killed just before its next beat."""
        own_usd = (self.elapsed_s() + BEAT_S + LATE_S) * self.price / SECONDS_PER_HOUR
        next_usd = sum(a.interval_s * a.price_usd_per_hour / SECONDS_PER_HOUR for a in self.others_alive())
        return self.money.cap_usd - self.others_usd() - own_usd - next_usd

    def left_s(self) -> float:
        """Seconds of work that are left under the cap; infinite on a machine that costs nothing."""
        return self.left_usd() / self.price * SECONDS_PER_HOUR if self.price else float("inf")

    # ------------------------------------------------------------ what the work calls

    def exhausted(self) -> bool:
        """Whether one more round of each loop under way (as long as this one's longest) would be too much.

        Call it once a round: it is also the sign of progress that the dead man's switch waits for. Raises
        the `UserError` of a heartbeat that could not be written.
        """
        now = now_s()
        if self.checked_s is not None:
            self.longest_s = max(self.longest_s, now - self.checked_s)
        self.checked_s = now
        if self._failure is not None:
            raise self._failure
        return self.left_s() <= self.longest_s * (1 + len(self.others_alive()))

    def beat(self) -> None:
        """Write down the time so far."""
        self.ledger.beat(self.id, self.elapsed_s(), utc_now())

    def expect(self, expected_s: float) -> None:
        """Write down how long this should have taken at its end: dollars that others must not plan."""
        self.ledger.expect(self.id, self.elapsed_s(), utc_now(), expected_s)

    def stop_machine(self) -> None:
        """Run the profile's command that stops the rented machine, if it has one."""
        if self.money.stop_command:
            print(f"{self.run_id}: running money.stop_command", file=sys.stderr)
            try:
                subprocess.run(self.money.stop_command, shell=True, check=True, timeout=STOP_TIMEOUT_S)
            except subprocess.SubprocessError as error:
                print(f"{self.run_id}: money.stop_command failed ({error})", file=sys.stderr)

    # ------------------------------------------------------------ its life

    def __enter__(self) -> "Spending":
        elapsed_s = self.elapsed_s()
        interval_s = BEAT_S + LATE_S
        self._alive = _hold(self.id)
        self.ledger.begin(self.id, self.stage, self.run_id, self.price, interval_s, elapsed_s, utc_now())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._thread.join()
        status = "finished" if kind is None else self.status
        try:
            self.ledger.end(self.id, self.elapsed_s(), utc_now(), status)
        finally:
            _alive_path(self.id).unlink(missing_ok=True)
            self._alive.close()

    def _beat_on(self) -> None:
        while not self._leaving.wait(BEAT_S):
            try:
                self.beat()
            except UserError as error:  # raised where the work asks next
                self._failure = error
                continue
            minutes = self.money.dead_man_minutes
            if self.checked_s is None and self.left_s() <= BEAT_S:
                why = f"the cap of {self.money.cap_usd} $ is reached, so the process ends here; raise it"
                self._end_process(why, "budget_exhausted", BUDGET_EXHAUSTED)
            if self.checked_s is not None and now_s() - self.checked_s > minutes * 60:
                why = f"no step for {minutes:g} minutes (money.dead_man_minutes), so the process ends itself"
                self._end_process(f"{why}; the last checkpoint is kept", "hung", DEAD_MAN)

    def _end_process(self, why: str, status: str, exit_status: int) -> None:
        """For work that asks nothing (it has no checkpoint to save) or hangs: nothing else would help."""
        message = f"{self.stage} {self.run_id}: {why}, and run the same command to go on"
        print(message, file=sys.stderr, flush=True)
        try:
            self.ledger.end(self.id, self.elapsed_s(), utc_now(), status)
            self.stop_machine()
        finally:
            os._exit(exit_status)


def _alive_path(attempt: str) -> Path:
    return paths.scratch_root() / "alive" / attempt


def _hold(attempt: str) -> TextIO:
    """A locked file, as long as this process lives: no clock has to tell who was killed."""
    path = _alive_path(attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("w")
    fcntl.flock(stream, fcntl.LOCK_EX)
    return stream


def alive(attempt: Attempt) -> bool:
    """Whether an attempt's process runs now, on this machine."""
    path = _alive_path(attempt.id)
    if attempt.status is not None or not path.exists():
        return False
    try:
        with path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # it has just ended
        return False
    path.unlink(missing_ok=True)  # of one that was killed
    return False


def charged(stage: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorator of a stage's `main`: its time, from the start of the process, is in the ledger.

    Raises `UserError` before it begins if the cap is spent.
    """

    def decorate(main: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(main)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
            study = load_study()
            run_id = f"{study.choice.model}-seed{study.choice.seed}"
            spending = Spending(stage, run_id, study.profile.money, process_start_s())
            if spending.left_s() <= 0:
                raise UserError(f"money.cap_usd: {spent_out(spending)}")
            with spending:
                main(*args, **kwargs)

        return wrapped

    return decorate


def spent_out(spending: Spending) -> str:
    """Why nothing can start any more."""
    return (
        f"the cap of {spending.money.cap_usd:.2f} $ is spent ({spending.others_usd():.2f} $ in "
        f"{spending.ledger.path}), so {spending.stage} does not start; raise it to go on"
    )
