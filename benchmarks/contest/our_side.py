"""Our side of a contest: the project's own `train`, with the study's recipe and its rule for the lr."""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from contest.terms import Data, Terms
from x1_pretrain.config import as_dict
from x1_pretrain.determinism import setup
from x1_pretrain.errors import UserError
from x1_pretrain.record import Finished
from x1_pretrain.run_spec import RunSpec, spec_of
from x1_pretrain.shape import ModelShape
from x1_pretrain.spikes.trainer import TorchTrainer
from x1_pretrain.study import Study
from x1_pretrain.tracking import OFF
from x1_pretrain.train import train

NAME = "time-to-loss"
WARM_STEPS = 3  # before the first timed block: compilation, caches, the optimizer's state


@dataclass(frozen=True)
class Point:
    """A run of `steps` optimizer steps, or a branch that ends there: what it read and where it came to."""

    steps: int
    tokens: int
    loss_nats: float


@dataclass(frozen=True)
class OurRun:
    """One call of `train`. `step_s` is the mean over all steps but the first, which is `first_step_s`."""

    points: tuple[Point, ...]
    step_s: float
    first_step_s: float
    evaluation_s: float


class OurSide:
    """The terms replace the profile's shape, batch and threads; everything else is the study's."""

    def __init__(self, study: Study, terms: Terms) -> None:
        self.terms, self.study = terms, on_terms(study, terms)
        self.trainer: TorchTrainer | None = None  # made for the first timed block

    def facts(self) -> dict[str, Any]:
        """The switches and the numbers that our runs are trained with."""
        return {"recipe": as_dict(self.study.choice.recipe), "train": as_dict(self.study.profile.train)}

    def train(self, horizons: tuple[int, ...]) -> OurRun:
        """One run with a branch for each horizon (steps, increasing)."""
        torch.compiler.reset()  # the graphs of an earlier run would count against torch's limit
        spec = spec_for(self.study, horizons)
        return outcome(train(spec, self.terms.tokens, OFF, NAME, _deliver_nothing))

    def time_steps(self, n_steps: int) -> float:
        """Mean seconds of a step over a block of steps, loading the batch included."""
        loader = Data(self.terms).loader
        if self.trainer is None:
            torch.compiler.reset()
            profile, choice = self.study.profile, self.study.choice
            used = setup(profile.device, choice.seed)
            self.trainer = TorchTrainer(
                self.study.shape_of(NAME),
                choice.recipe,
                profile.train,
                loader.tokens.n_vocab,
                choice.seed,
                used,
            )
            for step in range(WARM_STEPS):
                self.trainer.step(loader.batch(step), 1.0)
        clock = time.perf_counter()
        for step in range(n_steps):
            self.trainer.step(loader.batch(step), 1.0)
        return (time.perf_counter() - clock) / n_steps


def on_terms(study: Study, terms: Terms) -> Study:
    """The study with the contest's shape as a model of its own, and the contest's batch, data and threads.

    Raises `UserError` for a shape that cannot be.
    """
    profile = study.profile
    try:
        shape = ModelShape(terms.n_layer, terms.d_model, terms.n_head, terms.n_head, flops=1.0)
    except ValueError as error:
        raise UserError(f"--shape {terms.n_layer},{terms.d_model},{terms.n_head}: {error}") from error
    batch = replace(
        profile.train,
        seq_len=terms.seq_len,
        batch_sequences=terms.batch_sequences,
        micro_batch=terms.batch_sequences,
        val_tokens=terms.val_tokens,
        noise_batches=0,  # a measurement, no part of training
    )
    device = replace(profile.device, kind="cpu", threads=terms.threads)
    models = {**profile.models, NAME: shape}
    half = terms.seq_len // 2 or 1  # unused, but a profile must be sound
    inference = replace(profile.inference, prompt_tokens=half, new_tokens=half)
    choice = replace(study.choice, seed=terms.seed)
    return Study(choice, replace(profile, device=device, train=batch, models=models, inference=inference))


def spec_for(study: Study, horizons: tuple[int, ...]) -> RunSpec:
    """A run as long as the last horizon, evaluated at the end of each branch and nowhere else.

    Its length is given in steps, so the shape's `flops` has no part in it.
    """
    total = horizons[-1]
    fractions = tuple(steps / total for steps in horizons)
    return spec_of(study, NAME, NAME, NAME, fractions, total_steps=total, eval_every=total)


def outcome(finished: Finished) -> OurRun:
    """The end of each branch, and the run's own clocks."""
    spec, measured = finished.spec, finished.measured
    points = []
    for i, branch in enumerate(spec.schedule.branches):
        (loss_nats,) = [
            e["val_loss_nats"] for e in finished.evaluations if e["branch"] == i and e["step"] == branch.end
        ]
        points.append(Point(branch.end, spec.tokens(branch.end), loss_nats))
    timed_steps = spec.schedule.work_steps - 1
    return OurRun(
        tuple(points),
        measured["training_s"] / timed_steps,
        measured["compile_s"],
        measured["evaluation_s"],
    )


def _deliver_nothing(finished: Finished) -> None:
    """A benchmark keeps no checkpoint."""
