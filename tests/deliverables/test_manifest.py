import dataclasses
import json
import types
import typing
from pathlib import Path

import pytest

from x1_pretrain import paths
from x1_pretrain.config import Device, Train
from x1_pretrain.deliverables.manifest import build_manifest
from x1_pretrain.deliverables.problems import InvalidDeliverablesError
from x1_pretrain.deliverables.schemas import load_validator
from x1_pretrain.determinism import Used
from x1_pretrain.errors import UserError
from x1_pretrain.limits import Count, Decay, FromZero, Natural, Positive, Several, Share
from x1_pretrain.shape import ModelShape, Recipe
from x1_pretrain.study import load_profile

ROOT = Path(__file__).parents[2]
OF_THE_STAGE = ("price_source", "price_date", "cap_usd", "mlflow")
FREE = load_profile(ROOT / paths.PROFILES / "tiny.yaml").money


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.chdir(ROOT)
    example = ROOT / paths.SCHEMAS / "examples/valid/manifest.tiny.json"
    manifest = json.loads(example.read_text(encoding="utf-8"))
    return {key: value for key, value in manifest.items() if key not in OF_THE_STAGE}


def test_a_manifest_is_the_run_and_its_price(run: dict):
    manifest = build_manifest(run, FREE)
    assert {key: manifest[key] for key in run} == run
    assert set(manifest) == {*run, *OF_THE_STAGE}
    assert manifest["cap_usd"] == 50.0


def test_the_same_run_has_the_same_manifest(run: dict):
    assert json.dumps(build_manifest(run, FREE)) == json.dumps(build_manifest(run, FREE))


def test_the_price_is_the_one_the_run_was_paid_with(run: dict):
    rented = dataclasses.replace(FREE, price_usd_per_hour=1.1)
    manifest = build_manifest({**run, "price_usd_per_hour": 1.1, "usd_spent": 3.5}, rented)
    assert (manifest["price_usd_per_hour"], manifest["usd_spent"]) == (1.1, 3.5)


@pytest.mark.parametrize(("paid", "now"), [(1.1, 0.0), (0.0, 1.1), (1.1, 2.2)])
def test_a_price_changed_after_the_run_is_refused(run: dict, paid: float, now: float):
    money = dataclasses.replace(FREE, price_usd_per_hour=now)
    with pytest.raises(
        UserError, match=rf"of {paid}, but money\.price_usd_per_hour of profile tiny is {now};"
    ):
        build_manifest({**run, "price_usd_per_hour": paid, "usd_spent": 3.5}, money)


@pytest.mark.parametrize("fact", ["state_sha256", "price_usd_per_hour"])
def test_a_run_that_lacks_a_fact_is_refused(run: dict, fact: str):
    del run[fact]
    with pytest.raises(InvalidDeliverablesError, match=f"missing key '{fact}'"):
        build_manifest(run, FREE)


LIMITS = {
    bool: {"type": "boolean"},
    Count: {"type": "integer", "minimum": 1},
    Natural: {"type": "integer", "minimum": 0},
    Several: {"type": "integer", "minimum": 0, "not": {"const": 1}},
    Positive: {"type": "number", "exclusiveMinimum": 0},
    FromZero: {"type": "number", "minimum": 0},
    Decay: {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    Share: {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
}


def rule_of(hint: typing.Any) -> dict:
    """The rule of a JSON Schema that allows what a field of the configuration allows."""
    if typing.get_origin(hint) is typing.Literal:
        return {"enum": list(typing.get_args(hint))}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (inner,) = [part for part in typing.get_args(hint) if part is not types.NoneType]
        return {**LIMITS[inner], "type": [LIMITS[inner]["type"], "null"]}
    return LIMITS[hint]


@pytest.mark.parametrize(
    ("section", "cls"),
    [("device", Device), ("train", Train), ("shape", ModelShape), ("recipe", Recipe)],
)
def test_the_schema_has_every_key_of_the_configuration_with_its_limits(section: str, cls: type):
    schema = load_validator("manifest", ROOT / paths.SCHEMAS).schema
    properties = schema["properties"]["config"]["properties"][section]["properties"]
    rules = {
        name: {key: value for key, value in rule.items() if key != "description"}
        for name, rule in properties.items()
    }
    hints = typing.get_type_hints(cls, include_extras=True)
    assert rules == {name: rule_of(hint) for name, hint in hints.items()}


def test_the_schema_has_every_fact_of_the_machine():
    schema = load_validator("manifest", ROOT / paths.SCHEMAS).schema
    assert list(schema["properties"]["cluster"]["properties"]) == list(Used.__dataclass_fields__)
