"""Incidents made on purpose, for teaching and for tests: what each does to a run, and its true cause.

All are pure functions of (seed, step), so that a replay of the step meets the same again. Exceptions are the
two that stand for a machine's fault, which does not come back: a flipped bit and a NaN gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from x1_pretrain.config import Train
from x1_pretrain.errors import UserError
from x1_pretrain.shape import Recipe
from x1_pretrain.spikes.evidence import Cause

Fault = Literal["stale_moment", "bit_flip", "nan_gradient"]

# The longest period of the repeated n-gram, as in OLMo 2's filter for such documents.
MAX_PERIOD = 13
RARE_IDS, RARE_POSITIONS = 8, 0.08
LR_FACTOR = 15.0
REWARM_STEPS = 10
# The other recipe for a stale second moment: until the spike the loss is this small.
GROWN_FROM = 0.01
# At 0.95 a second moment recovers within the steps an alarm takes; and where Muon trains the hidden matrices,
# embeddings and head alone hardly do harm.
STALE_BETA2 = 0.999
NEVER = 1 << 62


@dataclass(frozen=True)
class Kind:
    """What an injection does, and what a diagnosis should find."""

    cause: Cause
    subtype: str | None
    on: Literal["batch", "schedule", "state", "gradient"]
    adamw_beta2: float | None = None  # the whole run is AdamW's, with this in place of the profile's beta2
    transient: bool = False  # a machine's fault: replays do not meet it


KINDS: dict[str, Kind] = {
    "garbage": Kind("dataset_corruption", "foreign_tokens", "batch"),
    "shuffle": Kind("dataset_corruption", "broken_order", "batch"),
    "repeat": Kind("dataset_corruption", "repeated_ngram", "batch"),
    "rare": Kind("rare_token", None, "batch"),
    "stale_moment": Kind("adam_second_moment", None, "state", adamw_beta2=STALE_BETA2),
    "stale_moment_grown": Kind("adam_second_moment", None, "gradient", adamw_beta2=STALE_BETA2),
    "lr": Kind("lr_too_high", "raised", "schedule"),
    "rewarm": Kind("lr_too_high", "restarted_warmup", "schedule"),
    "bit_flip": Kind("numeric", "not_reproducible", "state", transient=True),
    "nan_gradient": Kind("numeric", "not_reproducible", "gradient", transient=True),
}


@dataclass(frozen=True)
class Injection:
    """One incident: `kind` happens at batches (or steps) `first` to `last`, both included.

    A schedule or gradient once changed stays so. `rare_ids` are for kind `rare`. Raises `UserError` for an
    unknown kind, or if there are no rare ids where they are needed.
    """

    kind: str
    first: int
    last: int
    n_vocab: int
    seed: int
    rare_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"spike.injection: {self.kind!r} is unknown; valid ones are {', '.join(KINDS)}")
        if self.kind == "rare" and not self.rare_ids:
            raise UserError(
                "spike.injection: rare needs tokens that the corpus hardly has, and this one has none; "
                "use a larger vocabulary or another injection"
            )

    @property
    def truth(self) -> Kind:
        return KINDS[self.kind]

    def settings(self, train: Train, recipe: Recipe) -> tuple[Train, Recipe]:
        """What the run is trained with: the study's own settings, but for a second moment that goes stale."""
        beta2 = self.truth.adamw_beta2
        return (
            (train, recipe)
            if beta2 is None
            else (replace(train, beta2=beta2), replace(recipe, optimizer="adamw"))
        )

    def never(self) -> "Injection":
        """The run as it would have been: what the no-spike control is trained with."""
        return replace(self, first=NEVER, last=NEVER)

    def spoil(self, batch: np.ndarray, number: int) -> np.ndarray:
        """Batch `number` [B, T+1] as the trainer meets it: a new array of the same dtype if it is spoiled."""
        if self.truth.on != "batch" or not self.first <= number <= self.last:
            return batch
        rng = np.random.default_rng([self.seed, number, list(KINDS).index(self.kind)])
        return _SPOIL[self.kind](batch, self, rng)

    def lr_factor(self, step: int) -> float:
        """What the schedule's lr is multiplied by at a step."""
        if self.truth.on != "schedule" or step < self.first:
            return 1.0
        ramp = (step - self.first + 1) / REWARM_STEPS if self.kind == "rewarm" else 1.0
        return LR_FACTOR * min(1.0, ramp)

    def gradient_scale(self, step: int) -> float:
        """What the loss's gradient is multiplied by at a step."""
        return GROWN_FROM if self.kind == "stale_moment_grown" and step < self.first else 1.0

    def fault(self, step: int, live: bool) -> Fault | None:
        """What is done to the optimizer's state or the gradient at a step; `live`: not in a replay."""
        kind = self.kind
        if step != self.first or kind not in ("stale_moment", "bit_flip", "nan_gradient"):
            return None
        return kind if live or not self.truth.transient else None


def garbage(batch: np.ndarray, injection: Injection, rng: np.random.Generator) -> np.ndarray:
    """Ids uniform over the vocabulary: a wrong file, or a decoder gone wrong."""
    return rng.integers(0, injection.n_vocab, size=batch.shape, dtype=batch.dtype)


def shuffle(batch: np.ndarray, injection: Injection, rng: np.random.Generator) -> np.ndarray:
    """Each window permuted: the histogram of tokens stays, the order is lost."""
    return rng.permuted(batch, axis=1)


def repeat(batch: np.ndarray, injection: Injection, rng: np.random.Generator) -> np.ndarray:
    """Each window is one random n-gram of 1 to 13 ids, tiled: the documents OLMo 2 removed."""
    rows, length = batch.shape
    spoiled = np.empty_like(batch)
    for row in range(rows):
        period = rng.integers(1, MAX_PERIOD + 1)
        gram = rng.integers(0, injection.n_vocab, size=period, dtype=batch.dtype)
        spoiled[row] = np.resize(gram, length)
    return spoiled


def rare(batch: np.ndarray, injection: Injection, rng: np.random.Generator) -> np.ndarray:
    """Some positions replaced by ids that the corpus hardly has."""
    here = rng.random(batch.shape) < RARE_POSITIONS
    return np.where(here, rng.choice(injection.rare_ids, size=batch.shape), batch).astype(batch.dtype)


_SPOIL: dict[str, Callable[[np.ndarray, Injection, np.random.Generator], np.ndarray]] = {
    "garbage": garbage,
    "shuffle": shuffle,
    "repeat": repeat,
    "rare": rare,
}
