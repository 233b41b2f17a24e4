"""Settings given on a benchmark's command line, as `dvc exp run -S` takes them."""

import dataclasses
from collections.abc import Iterable

from ruamel.yaml import YAML, YAMLError

from x1_pretrain.config import as_dict
from x1_pretrain.errors import UserError
from x1_pretrain.shape import Recipe
from x1_pretrain.study import Study
from x1_pretrain.typed_yaml import build


def setting(text: str) -> tuple[str, object]:
    """KEY=VALUE of the command line, the value read as YAML."""
    key, equals, value = text.partition("=")
    try:
        if equals:
            return key, YAML(typ="safe", pure=True).load(value)
    except YAMLError:
        pass
    raise UserError(f"--set {text}: expected KEY=VALUE, such as train.muon_lr=0.02")


def with_recipe(study: Study, settings: Iterable[tuple[str, object]]) -> Study:
    """The study with `recipe.<switch>` changed. Raises `UserError` for another key or a bad value."""
    recipe = as_dict(study.choice.recipe)
    for key, value in settings:
        section, _, switch = key.partition(".")
        if section != "recipe" or switch not in recipe:
            names = ", ".join(recipe)
            raise UserError(f"--set {key}: must be recipe.<switch>, with one of the switches {names}")
        recipe[switch] = value
    choice = dataclasses.replace(study.choice, recipe=build(Recipe, recipe, "recipe"))
    return dataclasses.replace(study, choice=choice)
