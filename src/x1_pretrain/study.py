"""The study: `params.yaml` chooses, the profile it names defines, and the two are checked together.

Every mistake is found here, before any compute starts, in one sentence that names file, key and value.
"""

import dataclasses
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from x1_pretrain import paths
from x1_pretrain.config import Profile
from x1_pretrain.errors import UserError
from x1_pretrain.limits import Limit, Unique
from x1_pretrain.shape import ModelShape, Recipe
from x1_pretrain.typed_yaml import build, read_yaml

Seed = Annotated[int, Limit("from 0 to 2^63 - 1", lambda n: 0 <= n < 2**63)]


@dataclass(frozen=True)
class SweepChoice:
    """Which models the sweep stage trains, ids of the profile, and with how many seeds, from `seed` on."""

    models: Annotated[tuple[str, ...], Unique]
    seeds: Annotated[int, Limit("from 1 to 100", lambda n: 1 <= n <= 100)]


@dataclass(frozen=True)
class SpikeChoice:
    """The spike lab's model, and what is done to it (see spikes/injections.py)."""

    model: str
    injection: Literal[
        "garbage",
        "shuffle",
        "repeat",
        "rare",
        "stale_moment",
        "stale_moment_grown",
        "lr",
        "rewarm",
        "bit_flip",
        "nan_gradient",
    ]


@dataclass(frozen=True)
class Choice:
    """params.yaml: the profile, the selected model, the seed, and the switches of an ablation."""

    profile: str
    model: str
    seed: Seed
    recipe: Recipe
    sweep: SweepChoice
    spike: SpikeChoice


@dataclass(frozen=True)
class Study:
    """Everything a stage may ask for."""

    choice: Choice
    profile: Profile

    @property
    def shape(self) -> ModelShape:
        return self.shape_of(self.choice.model)

    def shape_of(self, model: str) -> ModelShape:
        """The shape of a model by its id; raises `UserError` that lists the valid ids."""
        if model not in self.profile.models:
            raise UserError(
                f"model {model!r} is not in {profile_path(self.choice.profile)}; "
                f"valid models are {', '.join(self.profile.models)}"
            )
        return self.profile.models[model]


def profile_path(name: str) -> Path:
    return paths.PROFILES / f"{name}.yaml"


def load_profile(path: Path) -> Profile:
    """One profile file, checked on its own. Raises `UserError`."""
    return build(Profile, read_yaml(path), str(path))


def load_study(params: Path = paths.PARAMS) -> Study:
    """params.yaml and the profile it names, checked against each other. Raises `UserError`."""
    refuse_lost_experiment()
    return study_of(build(Choice, read_yaml(params), str(params)), f"{params}.profile")


def study_of(choice: Choice, where: str) -> Study:
    """A choice with the profile it names; `where` the name was given opens the message if there is none."""
    path = profile_path(choice.profile)
    if not path.is_file():
        raise UserError(f"{where}: {choice.profile!r} is unknown; valid profiles are {profile_names()}")
    return checked(Study(choice, load_profile(path)), path)


def checked(study: Study, path: Path) -> Study:
    """The study, if its profile (at `path`) has the chosen models and one sweep budget; else `UserError`."""
    choice = study.choice
    for model in (choice.model, choice.spike.model, *choice.sweep.models):
        study.shape_of(model)
    budgets = {study.shape_of(model).flops for model in choice.sweep.models}
    if len(budgets) > 1:
        raise UserError(
            f"{path}.models: the sweep is an IsoFLOP set, so the flops of "
            f"{', '.join(choice.sweep.models)} must be equal, found {sorted(budgets)}"
        )
    return study


def profile_names() -> str:
    return ", ".join(sorted(path.stem for path in paths.PROFILES.glob("*.yaml")))


def refuse_lost_experiment() -> None:
    """Raise `UserError` where DVC would train to the end and save nothing (DVC issue 8844).

    That is so in the temporary copy that `--temp` and `--queue` make of a shallow clone.
    """
    root = paths.project_root()
    if "DVC_EXP_BASELINE_REV" not in os.environ or root == Path.cwd():
        return
    command = ["git", "-C", str(root), "rev-parse", "--is-shallow-repository"]
    if subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "true":
        raise UserError(
            f"{root}: this clone is shallow, and DVC saves nothing of an experiment run there with --temp or "
            "--queue; run `git fetch --unshallow` first, or `dvc exp run` without --temp"
        )


def study_from(name: str) -> Study:
    """A study from a profile's name, a profile's file, or a file shaped like params.yaml."""
    choice, path = load_study().choice, Path(name)
    if profile_path(name).is_file():
        return study_of(dataclasses.replace(choice, profile=name), "--config")
    if not path.is_file():
        raise UserError(f"--config {name}: neither a file nor a profile; profiles are {profile_names()}")
    if "profile" in read_yaml(path):
        return load_study(path)
    return checked(Study(dataclasses.replace(choice, profile=path.stem), load_profile(path)), path)
