"""The one exception for mistakes of the user: a sentence that says what is wrong and what is right."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


class UserError(Exception):
    """Bad input. The message names the file, the key, the value and a valid choice, in one sentence."""


def exit_on_user_error(main: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that a `UserError` prints one line to stderr and exits with status 2."""

    @functools.wraps(main)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            main(*args, **kwargs)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)

    return wrapped
