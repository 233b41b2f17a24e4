import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.deliverables.schemas import (
    check_file,
    check_value,
    load_validator,
    parse,
    parse_csv,
)
from x1_pretrain.errors import UserError

POINT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["D"],
    "properties": {"D": {"type": "integer", "minimum": 1}, "loss": {"enum": ["low", "high"]}},
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "points": {"type": "array", "items": POINT},
        "sha": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "either": {"anyOf": [{"type": "null"}, {"$ref": "point.schema.json"}]},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "point.schema.json").write_text(json.dumps(POINT))
    return tmp_path


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"points": [{"D": 1}, {"D": 0}]}, "f: $.points[1].D: 0 is out of range, it must be >= 1"),
        ({"points": [{"D": "1"}]}, "f: $.points[0].D: expected integer, found '1'"),
        ({"points": [{}]}, "f: $.points[0]: missing key 'D'"),
        ({"points": [{"D": 1, "E": 2}]}, "f: $.points[0]: unknown key 'E'; valid keys are D, loss"),
        ({"points": [{"D": 1, "loss": "x"}]}, "f: $.points[0].loss: 'x' is not one of low, high"),
        ({"sha": "ab"}, "f: $.sha: 'ab' does not match ^[0-9a-f]{64}$"),
        ({"either": {"D": 0}}, "f: $.either.D: 0 is out of range, it must be >= 1"),
        ([], "f: $: expected object, found []"),
    ],
)
def test_a_problem_names_file_path_value_and_rule(folder: Path, value: object, line: str):
    assert [str(p) for p in check_value(value, "study", "f", folder)] == [line]


def test_every_problem_is_reported(folder: Path):
    value = {"points": [{"D": 0}, {}], "sha": "", "x": 1}
    assert len(check_value(value, "study", "f", folder)) == 4


def test_missing_keys_are_one_problem(tmp_path: Path):
    schema = {"type": "object", "required": ["N", "D"], "properties": {"N": {}, "D": {}}}
    (tmp_path / "two.schema.json").write_text(json.dumps(schema))
    assert [str(p) for p in check_value({}, "two", "f", tmp_path)] == ["f: $: missing key 'N', 'D'"]


def test_a_long_value_is_shortened(folder: Path):
    (problem,) = check_value({"sha": "x" * 10_000}, "study", "f", folder)
    assert len(str(problem)) < 200


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"{", "not valid JSON"),
        ("a.json", b'{"sha": NaN}', "NaN is not JSON; an unknown number is null"),
        ("a.json", b"\xff\xfe", "cannot be read as UTF-8"),
        ("a.csv", b"x,x\n1,2\n", "a column stands twice in the header x,x"),
        ("a.csv", b"x,y\n1,2\n3\n", "line 3 has 1 cells, the header has 2"),
        ("a.bin", b"", "deliverables are .json, .csv and .md"),
    ],
)
def test_an_unreadable_file_is_a_problem(folder: Path, name: str, content: bytes, reason: str):
    path = folder / name
    path.write_bytes(content)
    (problem,) = check_file(path, "study", folder)
    assert problem.file == str(path)
    assert reason in problem.reason


def test_a_table_spoiled_in_every_row_is_not_a_thousand_lines(folder: Path):
    path = folder / "a.json"
    path.write_text(json.dumps({"points": [{"D": 0}] * 1000}))
    problems = check_file(path, "study", folder)
    assert len(problems) == 11
    assert problems[-1].reason == "and 990 more problems"


def test_an_absent_file_is_a_problem(folder: Path):
    (problem,) = check_file(folder / "absent.json", "study", folder)
    assert "no such file" in problem.reason


def test_an_unknown_schema_lists_the_valid_ones(folder: Path):
    with pytest.raises(UserError, match="valid names are point, study"):
        load_validator("studdy", folder)


def test_a_schema_that_is_none_is_refused(folder: Path):
    (folder / "bad.schema.json").write_text('{"type": "objekt"}')
    with pytest.raises(UserError, match="not a JSON Schema"):
        load_validator("bad", folder)


def test_csv_cells_become_numbers_text_and_none():
    rows = parse_csv("run_id,N,loss,note\nA-1,12,2.5e0,\nB,-3,nan,1e999\n", "f")
    assert rows == [
        {"run_id": "A-1", "N": 12, "loss": 2.5, "note": None},
        {"run_id": "B", "N": -3, "loss": "nan", "note": "1e999"},
    ]
    assert type(rows[0]["N"]) is int


@given(st.lists(st.tuples(st.integers(), st.floats(allow_nan=False, allow_infinity=False))))
def test_numbers_survive_a_csv(rows: list[tuple[int, float]]):
    text = "".join(f"{n},{x!r}\n" for n, x in rows)
    assert parse_csv("n,x\n" + text, "f") == [{"n": n, "x": x} for n, x in rows]


def test_markdown_is_parsed(tmp_path: Path):
    path = tmp_path / "a.md"
    path.write_text("# T\n\nword\n")
    assert parse(path)["title"] == "T"
