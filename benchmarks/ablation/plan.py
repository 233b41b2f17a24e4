"""Which experiments an ablation consists of: the rows of its table, and each row's runs.

The rows follow from params.yaml and its profile, so that the table stays right when a default changes: a
switch that is on is turned off, one that is off is turned on, a choice is changed to each of its others.
"""

import itertools
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from x1_pretrain.config import Profile
from x1_pretrain.errors import UserError
from x1_pretrain.paths import PARAMS
from x1_pretrain.run_spec import spec_of
from x1_pretrain.shape import ModelShape, Recipe
from x1_pretrain.study import Choice, Study, load_study, profile_path
from x1_pretrain.typed_yaml import build, read_yaml

Values = dict[str, Any]  # by dotted key, such as recipe.qk_norm

BASELINE = "baseline"
WHEN_ON = {
    "recipe.bigram_rows": 16384,
    "recipe.logit_softcap": 15.0,
    "recipe.z_loss": 1e-4,
    "train.grad_clip": 1.0,
}
TUNED = {  # a comparison of optimizers is fair only if each has an lr of its own
    "optimizer-adamw": {
        "train.adamw_lr": (0.004, 0.008, 0.016, 0.032, 0.064),
        "train.embedding_lr": (0.01, 0.02, 0.04),
    }
}
TUNING_SEED = 1000  # not one of the paired seeds 0, 1, 2, ...


def flat(mapping: Mapping[str, Any], prefix: str = "") -> Values:
    """Nested mappings as one with dotted keys."""
    found: Values = {}
    for key, value in mapping.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def nested(values: Values) -> dict[str, Any]:
    """The inverse of `flat`."""
    root: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        place = root
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return root


def rows(baseline: Values, model: str) -> dict[str, Values]:
    """Name of a row -> the setting in which it differs from the baseline; the optimizer is first.

    A model with one head has no row for the number of key and value heads.
    """
    hints = {f"recipe.{name}": hint for name, hint in typing.get_type_hints(Recipe).items()}
    hints["train.grad_clip"] = float | None
    found = {
        _name(key, value): {key: value}
        for key, hint in hints.items()
        for value in _alternatives(hint, baseline[key], WHEN_ON.get(key))
    }
    heads, shared = baseline[f"models.{model}.n_head"], baseline[f"models.{model}.n_kv_head"]
    if heads > 1:
        value = 1 if shared > 1 else heads
        found[f"n_kv_head-{value}"] = {f"models.{model}.n_kv_head": value}
    return found


def _alternatives(hint: Any, value: Any, when_on: float | None) -> Iterator[Any]:
    if typing.get_origin(hint) is typing.Literal:
        yield from (choice for choice in typing.get_args(hint) if choice != value)
    elif hint is bool:
        yield not value
    else:
        yield when_on if value is None else None


def _name(key: str, value: Any) -> str:
    shown = value if isinstance(value, str) else "on" if value else "off"
    return f"{key.rpartition('.')[2]}-{shown}"


@dataclass(frozen=True)
class Planned:
    """An experiment that is to be run: its name, and what `dvc exp run -S` is told."""

    name: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What all runs share: `params` (of params.yaml) and `profile`, the model, `steps` optimizer steps."""

    params: Values
    profile: Values
    model: str
    steps: int
    common: Values  # set in every run, the baseline too

    @property
    def values(self) -> Values:
        return self.params | self.profile | self.common

    def planned(self, name: str, settings: Values) -> Planned:
        """One experiment. Raises `UserError` if its settings are not valid, before anything is queued."""
        settings = {"model": self.model, "sweep.models": [self.model], "sweep.branches": [1.0]} | (
            self.common | settings
        )
        for key in settings:
            if key not in self.params | self.profile:
                raise UserError(f"{name}: neither {PARAMS} nor its profile has a key {key!r}")
        values = self.params | self.profile | settings
        shape = build(ModelShape, nested(values)["models"][self.model], f"{name}: models.{self.model}")
        # The horizon is the same number of steps in every row, also where the row changes N.
        tokens = self.steps * values["train.batch_sequences"] * values["train.seq_len"]
        settings[f"models.{self.model}.flops"] = float(6 * shape.N * tokens)
        params, profile = (
            nested({key: settings.get(key, value) for key, value in part.items()})
            for part in (self.params, self.profile)
        )
        choice = build(Choice, params, f"{name}: {PARAMS}")
        study = Study(choice, build(Profile, profile, f"{name}: {profile_path(choice.profile)}"))
        spec_of(study, self.model, "train", "train")  # is the run long enough for its schedule?
        return Planned(name, tuple(self._override(key, value) for key, value in settings.items()))

    def _override(self, key: str, value: Any) -> str:
        file = "" if key in self.params else f"{profile_path(self.params['profile'])}:"
        return f"{file}{key}={hydra(value)}"

    def tuning(self, row: str, settings: Values) -> dict[str, tuple[Planned, Values]]:
        """The trials of a row with a grid, one run each on a seed of their own: name -> run and settings."""
        grid = TUNED.get(row, {})
        trials = {}
        for number, chosen in enumerate(itertools.product(*grid.values()) if grid else ()):
            trial = settings | dict(zip(grid, chosen, strict=True))
            name = f"ablation-{row}-tune{number}-seed{TUNING_SEED}"
            trials[name] = self.planned(name, trial | {"seed": TUNING_SEED}), trial
        return trials

    def paired(self, chosen: Mapping[str, Values], seeds: int) -> list[Planned]:
        """Every row with one seed, then with the next: what drifts on the machine meets all rows alike."""
        return [
            self.planned(f"ablation-{row}-seed{seed}", settings | {"seed": seed})
            for seed in range(seeds)
            for row, settings in ({BASELINE: {}} | dict(chosen)).items()
        ]


def hydra(value: Any) -> str:
    """A value as `-S` reads it."""
    if isinstance(value, list):
        return f"[{','.join(map(hydra, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def load_plan(model: str, steps: int, common: Values) -> Plan:
    """A plan on params.yaml and its profile as they are. Raises `UserError` for what is wrong in them."""
    study = load_study()
    study.shape_of(model)
    profile = read_yaml(profile_path(study.choice.profile))
    return Plan(flat(read_yaml(PARAMS)), flat(profile), model, steps, common)
