"""What a configured value must be besides its type: `Annotated[int, Limit(...)]` beside its field."""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any


@dataclasses.dataclass(frozen=True)
class Limit:
    """What a value must be besides its type: a test, and the words that end "<value> is not ..."."""

    words: str
    holds: Callable[[Any], bool]


Count = Annotated[int, Limit("at least 1", lambda n: n >= 1)]
Natural = Annotated[int, Limit("at least 0", lambda n: n >= 0)]
Several = Annotated[int, Limit("0 or at least 2", lambda n: n == 0 or n >= 2)]
Positive = Annotated[float, Limit("a finite number above 0", lambda x: 0 < x < float("inf"))]
FromZero = Annotated[float, Limit("at least 0", lambda x: x >= 0)]
Decay = Annotated[float, Limit("in [0, 1)", lambda x: 0 <= x < 1)]
Share = Annotated[float, Limit("in (0, 1]", lambda x: 0 < x <= 1)]
Part = Annotated[float, Limit("between 0 and 1", lambda x: 0 < x < 1)]
Named = Annotated[str, Limit("a name of at least one letter", lambda s: bool(s.strip()))]
Unique = Limit("a list of one or more, each once", lambda v: len(v) == len(set(v)) > 0)


def broken(hint: Any, value: Any) -> str | None:
    """Why `value` is outside the limits of an annotated type, or None. An optional value may be None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        within = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        return None if value is None or len(within) != 1 else broken(within[0], value)
    limits = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((f"{value!r} is not {limit.words}" for limit in limits if not limit.holds(value)), None)


def hold_limits(section: Any) -> None:
    """For a `__post_init__`: the same limits where no file is read. Raises `ValueError`."""
    for name, hint in typing.get_type_hints(type(section), include_extras=True).items():
        if why := broken(hint, getattr(section, name)):
            raise ValueError(f"{name} {why}")
