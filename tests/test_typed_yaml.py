import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.limits import Limit, hold_limits
from x1_pretrain.typed_yaml import build, read_yaml


@dataclass(frozen=True)
class Inner:
    lr: float
    kind: Literal["cpu", "cuda"] = "cpu"


@dataclass(frozen=True)
class Outer:
    steps: int
    inner: Inner
    on: bool = True
    note: str | None = None
    branches: tuple[float, ...] = ()
    models: dict[str, Inner] = dataclasses.field(default_factory=dict)
    share: Annotated[float, Limit("in (0, 1]", lambda x: 0 < x <= 1)] | None = None


def outer(**changes):
    return {"steps": 3, "inner": {"lr": 0.5}, **changes}


def test_a_nested_mapping_becomes_dataclasses():
    built = build(Outer, outer(branches=[0.5, 1], models={"A": {"lr": 1}}, note=None), "f")
    assert built == Outer(3, Inner(0.5), True, None, (0.5, 1.0), {"A": Inner(1.0)})
    assert isinstance(built.models["A"].lr, float)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (outer(stepz=1), "f: unknown key 'stepz'; valid keys are steps, inner, on, note"),
        ({"inner": {"lr": 1.0}}, "f: missing key 'steps'"),
        (outer(steps="3"), "f.steps: expected a whole number, found '3'"),
        (outer(steps=3.0), "f.steps: expected a whole number, found 3.0"),
        (outer(steps=True), "f.steps: expected a whole number, found True"),
        (outer(on=1), "f.on: expected true or false, found 1"),
        (outer(note=3), "f.note: expected a string, found 3"),
        (outer(inner={"lr": "3e-5"}), "f.inner.lr: expected a number, found '3e-5'"),
        (outer(inner={"lr": True}), "f.inner.lr: expected a number, found True"),
        (outer(inner={"lr": float("nan")}), "f.inner.lr: expected a number, found nan"),
        (outer(inner=[1]), "f.inner: expected a mapping of keys, found [1]"),
        (outer(inner={"lr": 1.0, "kind": "tpu"}), "'tpu' is not valid; choose one of cpu, cuda"),
        (outer(branches=0.5), "f.branches: expected a list, found 0.5"),
        (outer(branches=[0.5, "1"]), "f.branches[1]: expected a number, found '1'"),
        (outer(models={"A": {"lr": 1.0, "x": 1}}), "f.models.A: unknown key 'x'"),
        (outer(models={1: {"lr": 1.0}}), "f.models: the key 1 is not a string; write it in quotes"),
        (outer(models=[{"lr": 1.0}]), "f.models: expected a mapping of keys, found [{'lr': 1.0}]"),
        (outer(models={"A": [1]}), "f.models.A: expected a mapping of keys, found [1]"),
        ({**outer(), 7: 1}, "f: unknown key 7; valid keys are steps"),
        (outer(inner={"lr": float("inf")}), "f.inner.lr: expected a number, found inf, which is not finite"),
        (outer(inner={"lr": 10**400}), "f.inner.lr: expected a number, found inf"),
        (outer(share=0), "f.share: 0 is not in (0, 1]"),
        (outer(share="1"), "f.share: expected a number, found '1'"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_place_and_the_value(values, sentence):
    with pytest.raises(UserError) as error:
        build(Outer, values, "f")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_limit_holds_where_no_file_is_read_too():
    @dataclass(frozen=True)
    class Limited:
        share: Annotated[float, Limit("in (0, 1]", lambda x: 0 < x <= 1)]

        def __post_init__(self) -> None:
            hold_limits(self)

    assert Limited(1.0).share == 1.0
    with pytest.raises(ValueError, match=r"^share 1\.5 is not in \(0, 1\]$"):
        Limited(1.5)


@pytest.mark.parametrize("text", ["3e-05", "3.0e-05", "0.00003", "1e-3", "6.0e+12"])
def test_small_floats_as_dvc_writes_them_are_numbers(tmp_path: Path, text: str):
    file = tmp_path / "p.yaml"
    file.write_text(f"lr: {text}\n")
    assert build(Inner, read_yaml(file), "p").lr == float(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_survives_yaml(tmp_path_factory: pytest.TempPathFactory, value: float):
    file = tmp_path_factory.mktemp("yaml") / "p.yaml"
    file.write_text(f"lr: {value!r}\n")
    assert build(Inner, read_yaml(file), "p").lr == value


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("- 1\n", "expected a mapping of keys, found list"),
        ("a: [1\n", "not valid YAML"),
        ("", "NoneType"),
        ("date: 2026-13-45\n", "not valid YAML"),
        ("n: !!int x\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str, sentence: str):
    file = tmp_path / "p.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=sentence) as error:
        read_yaml(file)
    assert str(file) in str(error.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "p.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(UserError, match=r"p\.yaml: not valid YAML"):
        read_yaml(tmp_path / "p.yaml")


def test_an_absent_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"absent\.yaml: no such file"):
        read_yaml(tmp_path / "absent.yaml")
