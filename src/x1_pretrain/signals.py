"""SIGTERM and Ctrl-C ask the training loop to save and leave, instead of ending the process at once."""

import signal
from types import FrameType, TracebackType

ASKING = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """`with StopRequest() as stop:`; `stop.status` is None, or the exit status 128 + signal once asked."""

    def __init__(self) -> None:
        self.status: int | None = None

    def __enter__(self) -> "StopRequest":
        self.before = {number: signal.signal(number, self._ask) for number in ASKING}
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.status = 128 + number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
