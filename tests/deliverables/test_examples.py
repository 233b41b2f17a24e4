"""Every schema has examples that fit it and examples that break one rule each."""

import json
from pathlib import Path

import pytest

from x1_pretrain import paths
from x1_pretrain.deliverables.registry import DELIVERABLES
from x1_pretrain.deliverables.schemas import SUFFIX, check_value, load_validator

SCHEMAS = Path(__file__).parents[2] / paths.SCHEMAS
NAMES = sorted(path.name.removesuffix(SUFFIX) for path in SCHEMAS.glob(f"*{SUFFIX}"))
VALID = sorted((SCHEMAS / "examples/valid").glob("*.json"))
INVALID = sorted((SCHEMAS / "examples/invalid").glob("*.json"))
NARROWING = {"oneOf", "anyOf", "allOf", "if", "then", "else", "not", "contains"}


def schema_of(example: Path) -> str:
    """`<schema>.<what it shows>.json`"""
    return example.name.split(".")[0]


@pytest.mark.parametrize("example", VALID, ids=lambda path: path.stem)
def test_valid_example_fits(example: Path):
    value = json.loads(example.read_text(encoding="utf-8"))
    assert check_value(value, schema_of(example), example.name, SCHEMAS) == []


@pytest.mark.parametrize("example", INVALID, ids=lambda path: path.stem)
def test_invalid_example_breaks_a_rule(example: Path):
    value = json.loads(example.read_text(encoding="utf-8"))
    problems = check_value(value, schema_of(example), example.name, SCHEMAS)
    assert problems
    for problem in problems:
        assert problem.path.startswith("$")
        assert 0 < len(str(problem)) < 500
        assert "\n" not in str(problem)


@pytest.mark.parametrize("name", sorted({*NAMES, *(entry.schema for entry in DELIVERABLES)}))
def test_every_schema_has_both_kinds_of_example(name: str):
    assert name in NAMES, f"the registry names {name}, which has no schema"
    assert sum(schema_of(path) == name for path in VALID) >= 1
    assert sum(schema_of(path) == name for path in INVALID) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_is_strict_and_explained(name: str):
    schema = load_validator(name, SCHEMAS).schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    assert schema["description"]
    loose = [where for where, part in objects(schema) if not is_strict(part)]
    assert loose == []


def objects(schema: object, where: str = "$"):
    """Every sub-schema that describes an object; not those that only narrow one described above."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" or schema.get("type") == ["object", "null"]:
            yield where, schema
        for key, value in schema.items():
            branches = value if isinstance(value, list) else [value]
            narrows = key in NARROWING and not any("type" in b or "$ref" in b for b in branches)
            if not narrows:
                yield from objects(value, f"{where}.{key}")
    elif isinstance(schema, list):
        for i, value in enumerate(schema):
            yield from objects(value, f"{where}[{i}]")


def is_strict(part: dict) -> bool:
    """No unknown key, and every known one required; or a map whose values have a schema."""
    extra = part.get("additionalProperties")
    if "properties" not in part:
        return isinstance(extra, dict) or "patternProperties" in part
    return extra is False and set(part.get("required", [])) == set(part["properties"])


def test_no_example_is_without_a_schema():
    assert {schema_of(path) for path in [*VALID, *INVALID]} <= set(NAMES)
