"""The one exception for mistakes of the user: a sentence that says what is wrong and what is right."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


class UserError(Exception):
    """Bad input. The message names the file, the key, the value and a valid choice, in one sentence."""


def exit_on_user_error(main: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command: a `UserError`, or the system's refusal of a file, is one line and status 2."""

    @functools.wraps(main)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            main(*args, **kwargs)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        except OSError as error:  # a full disk, a folder without permission
            print(f"error: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)

    return wrapped
