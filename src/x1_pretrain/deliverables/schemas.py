"""Checks a deliverable against its JSON Schema, whether it is JSON, CSV or Markdown.

A CSV is checked as its list of rows with numbers parsed, a Markdown document as its structure.
"""

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json
from x1_pretrain.deliverables.markdown import parse_markdown
from x1_pretrain.deliverables.problems import Problem, shortened
from x1_pretrain.errors import UserError

SUFFIX = ".schema.json"
MAX_PROBLEMS = 10  # of one file: a spoiled header spoils every row of a table
INTEGER = re.compile(r"[+-]?\d+")


def schema_path(name: str, folder: Path = paths.SCHEMAS) -> Path:
    return folder / f"{name}{SUFFIX}"


def load_validator(name: str, folder: Path = paths.SCHEMAS) -> Draft202012Validator:
    """The validator of one schema; a `$ref` may name another file of the same folder.

    Raises `UserError` when there is no such schema or it is not valid JSON Schema 2020-12.
    """
    path = schema_path(name, folder)
    if not path.is_file():
        valid = ", ".join(sorted(p.name.removesuffix(SUFFIX) for p in folder.glob(f"*{SUFFIX}")))
        raise UserError(f"{path}: no such schema; valid names are {valid or 'none: no schemas here'}")
    schema = read_json(path)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise UserError(f"{path}: not a JSON Schema: {error.json_path}: {error.message}") from error

    def retrieve(uri: str) -> Resource[Any]:
        return DRAFT202012.create_resource(read_json(folder / uri))

    return Draft202012Validator(schema, registry=Registry(retrieve=retrieve))


def check_value(value: Any, schema: str, file: str, folder: Path = paths.SCHEMAS) -> list[Problem]:
    """Every way in which a parsed deliverable differs from its schema, in the order of the file."""
    errors = load_validator(schema, folder).iter_errors(value)
    found = [best_match([error]) or error for error in errors]
    found.sort(key=lambda error: [str(part) for part in error.absolute_path])
    # The validator has one error for each missing key, but the reason names all of them.
    return list(dict.fromkeys(Problem(file, error.json_path, reason(error)) for error in found))


def check_file(path: Path, schema: str, folder: Path = paths.SCHEMAS) -> list[Problem]:
    """`check_value` of a file; one that cannot be read or parsed is a problem, not an exception."""
    try:
        value = parse(path)
    except UserError as error:
        return [Problem(str(path), "$", str(error).removeprefix(f"{path}: "))]
    problems = check_value(value, schema, str(path), folder)
    shown, hidden = problems[:MAX_PROBLEMS], problems[MAX_PROBLEMS:]
    if hidden:
        shown.append(Problem(str(path), "$", f"and {len(hidden)} more problems"))
    return shown


def parse(path: Path) -> Any:
    """A deliverable as the value its schema is about. Raises `UserError`."""
    if path.suffix == ".json":
        try:
            return json.loads(_read_text(path), parse_constant=_refuse_constant)
        except ValueError as error:
            raise UserError(f"{path}: not valid JSON ({error})") from error
    if path.suffix == ".csv":
        return parse_csv(_read_text(path), str(path))
    if path.suffix == ".md":
        return parse_markdown(_read_text(path))
    raise UserError(f"{path}: cannot be checked; deliverables are .json, .csv and .md")


def parse_csv(text: str, file: str) -> list[dict[str, Any]]:
    """Rows as objects: an empty cell is None, a finite number a number, all else stays text.

    Raises `UserError` for a repeated column or a row of another length than the header.
    """
    header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if len(set(header)) < len(header):
        raise UserError(f"{file}: a column stands twice in the header {','.join(header)}")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise UserError(f"{file}: line {number} has {len(row)} cells, the header has {len(header)}")
    return [dict(zip(header, map(_cell, row), strict=True)) for row in rows]


def reason(error: ValidationError) -> str:
    """One sentence with the value shortened; jsonschema's own would quote whole objects."""
    instance, rule = error.instance, error.validator_value
    shown = shortened(instance)
    match error.validator:
        case "required":
            missing = [key for key in rule if key not in instance]
            return f"missing key {', '.join(map(repr, missing))}"
        case "additionalProperties" | "unevaluatedProperties":
            known = error.schema.get("properties", {})
            extra = [key for key in instance if key not in known]
            return f"unknown key {', '.join(map(repr, extra))}; valid keys are {', '.join(known)}"
        case "type":
            kinds = [rule] if isinstance(rule, str) else rule
            return f"expected {' or '.join(kinds)}, found {shown}"
        case "enum":
            return f"{shown} is not one of {', '.join(map(str, rule))}"
        case "const":
            return f"expected {rule!r}, found {shown}"
        case "pattern":
            return f"{shown} does not match {rule}"
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum":
            sign = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<="}
            return f"{shown} is out of range, it must be {sign.get(error.validator, '<')} {rule}"
        case "minItems" | "maxItems" | "minLength" | "maxLength":
            most = "at least" if error.validator.startswith("min") else "at most"
            return f"has length {len(instance)}, it must be {most} {rule}"
        case "contains":
            return f"{shown} lacks an item that is {shortened(rule)}"
        case _:
            return f"{shown} breaks the rule {error.validator}: {shortened(rule)}"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; the stage that makes it has not run") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text ({error})") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; an unknown number is null")


def _cell(text: str) -> Any:
    if text == "":
        return None
    if INTEGER.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
