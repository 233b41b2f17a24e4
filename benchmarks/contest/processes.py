"""Each side of a contest in a process of its own, so that both keep their natural state.

What one side sets for its whole process (torch's deterministic mode, the garbage collector, module names,
compiled code) would slow down or speed up the other. A side that is not called sleeps.
"""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from x1_pretrain.errors import UserError


class Side:
    """`with Side(environment, build, *arguments) as side: side.call("method", ...)`.

    `build(*arguments)` makes, in the new process, the object that is called. What it prints goes to stderr.
    `environment` is set before `build` runs. Raises what the method raises: `UserError` as it is, anything
    else as a `RuntimeError` with its traceback.
    """

    def __init__(self, environment: dict[str, str], build: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, environment, build, arguments), daemon=True
        )
        self._process.start()
        theirs.close()  # so that the death of the process is seen as the end of the stream

    def __enter__(self) -> "Side":
        self._answer()
        return self

    def call(self, method: str, *arguments: Any) -> Any:
        self._connection.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            good, value = self._connection.recv()
        except EOFError as error:
            self._process.join()
            raise RuntimeError(f"a side ended with status {self._process.exitcode}") from error
        if good:
            return value
        raise value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(
    connection: Connection,
    environment: dict[str, str],
    build: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.dup2(2, 1)  # stdout is for the one line of JSON
    os.environ.update(environment)
    try:
        side = _answer_of(connection, lambda: (build(*arguments), None))
        while side is not None:
            method, given = connection.recv()
            _answer_of(connection, lambda m=method, g=given: (None, getattr(side, m)(*g)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # the other end is gone, or the user wants to leave


def _answer_of(connection: Connection, work: Callable[[], tuple[Any, Any]]) -> Any:
    """Send (True, value) or (False, exception); returns what stays in this process."""
    try:
        kept, value = work()
    except UserError as error:
        connection.send((False, error))
        return None
    except Exception as error:  # whatever a peer raises is the caller's to see
        connection.send((False, RuntimeError(f"{error!r}\n{traceback.format_exc()}")))
        return None
    connection.send((True, value))
    return kept
