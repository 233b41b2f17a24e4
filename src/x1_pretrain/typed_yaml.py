"""YAML into frozen dataclasses, strictly: a wrong type, an unknown or a missing key is a `UserError`.

So is a value outside the limit that stands beside its field (see limits.py). Files are read as YAML 1.2
(ruamel): PyYAML would turn `3e-05`, which DVC writes, into a string.
"""

import dataclasses
import math
import types
import typing
from pathlib import Path
from typing import Annotated, Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from x1_pretrain.errors import UserError
from x1_pretrain.limits import broken

T = TypeVar("T")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML 1.2 file. Raises `UserError` if it is missing or not a mapping."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no such date or number
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a mapping of keys, found {type(content).__name__}")
    return content


def build(cls: type[T], values: Any, where: str) -> T:
    """A frozen dataclass `cls` from a mapping; `where` (file and key) opens every error message."""
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected a mapping of keys, found {values!r}")
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            raise UserError(f"{where}: unknown key {key!r}; valid keys are {', '.join(fields)}")
    built = {}
    for name, field in fields.items():
        if name in values:
            built[name] = convert(hints[name], values[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{where}: missing key {name!r}")
    try:
        return cls(**built)
    except ValueError as error:  # a dataclass's own __post_init__ states what is wrong
        raise UserError(f"{where}: {error}") from error


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type `hint`; an int is a float, nothing else is coerced."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        built = convert(arguments[0], value, where)
        if why := broken(hint, value):
            raise UserError(f"{where}: {why}")
        return built
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return convert(inner, value, where)
    if origin is typing.Literal:
        if value not in arguments or type(value) not in {type(a) for a in arguments}:
            valid = ", ".join(str(a) for a in arguments)
            raise UserError(f"{where}: {value!r} is not valid; choose one of {valid}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise UserError(f"{where}: expected a list, found {value!r}")
        return tuple(convert(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise UserError(f"{where}: expected a mapping of keys, found {value!r}")
        for key in value:
            if not isinstance(key, str):
                raise UserError(f"{where}: the key {key!r} is not a string; write it in quotes")
        return {key: convert(arguments[1], v, f"{where}.{key}") for key, v in value.items()}
    if dataclasses.is_dataclass(hint):
        return build(hint, value, where)
    return _scalar(hint, value, where)


def _scalar(hint: type, value: Any, where: str) -> Any:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    if hint is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            value = math.inf
    if type(value) is not hint:
        raise UserError(f"{where}: expected {names[hint]}, found {value!r}")
    if hint is float and not math.isfinite(value):
        raise UserError(f"{where}: expected a number, found {value}, which is not finite")
    return value
