"""What changes along a run by the step alone: learning rate, batch size, attention window.

WSD (warm-up, stable, decay) may have cool-down branches: a run of D tokens keeps a constant lr on its
trunk; a branch that ends at a fraction of D leaves the trunk for its own linear cool-down, and the trunk
then goes on from where the branch left it (Hagele et al. 2024). Four branches cost about 18% more than one
run and give four points of L(N, D) instead of one. A cosine knows its end from the start, so that there
each branch is a run of its own from the first step.
"""

import math
from dataclasses import dataclass, replace

from x1_pretrain.config import Train
from x1_pretrain.errors import UserError
from x1_pretrain.shape import Recipe

COSINE_FLOOR = 0.1  # of the peak lr, where a cosine ends (Hoffmann et al. 2022)
RAMP = (4, 2)  # the batch is a fourth, then a half, for the same number of steps each
RAMP_SAVES = sum(1 - 1 / part for part in RAMP)  # batches saved for each step of the ramp's stages
WINDOWS = (4, 2, 1)  # attention reaches back T/4, T/2, then T tokens, a third of the trunk each


@dataclass(frozen=True)
class Branch:
    """Steps [start, end) of work: the trunk from `start`, the cool-down from `fork`."""

    fraction: float
    start: int
    fork: int
    end: int


@dataclass(frozen=True)
class Schedule:
    """Steps count from 0, sequences are counted over the trunk and the branch at hand."""

    branches: tuple[Branch, ...]
    kind: str
    peak_scale: float  # of every lr, for a run of this length
    warmup_steps: int
    batch_sequences: int
    ramp_steps: int  # of each stage of the batch ramp; 0 for none
    window_steps: int  # until attention reaches back all the way; 0 for always

    @property
    def total_steps(self) -> int:
        """Steps of the longest branch: the length of the run."""
        return self.branches[-1].end

    @property
    def work_steps(self) -> int:
        """Steps actually computed, all branches together."""
        return sum(branch.end - branch.start for branch in self.branches)

    def done(self, branch: int, step: int) -> int:
        """Of `work_steps`, those behind a run that is at `step` of a branch."""
        before = sum(b.end - b.start for b in self.branches[:branch])
        return before + step - self.branches[branch].start

    def lr_scale(self, branch: Branch, step: int) -> float:
        """lr / the profile's lr; never zero: no step is wasted. A ramp's smaller batch has a lower lr.

        The square root is the rule for Adam-like updates (Malladi et al. 2022).
        """
        warm = self.peak_scale * (min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0)
        warm *= math.sqrt(self.sequences(step) / self.batch_sequences)
        if self.kind == "cosine":
            span = max(1, branch.end - self.warmup_steps)
            turned = math.pi * max(0, step + 1 - self.warmup_steps) / span
            return warm * (COSINE_FLOOR + (1 - COSINE_FLOOR) * 0.5 * (1 + math.cos(turned)))
        if step >= branch.fork:
            return self.peak_scale * (branch.end - step) / (branch.end - branch.fork + 1)
        return warm

    def sequences(self, step: int) -> int:
        """Sequences in the batch of a step."""
        stage = step // self.ramp_steps if self.ramp_steps else len(RAMP)
        return self.batch_sequences // RAMP[stage] if stage < len(RAMP) else self.batch_sequences

    def begin(self, step: int) -> int:
        """Sequences read before a step: where its batch begins in the loader's order."""
        ramped = min(step, self.ramp_steps * len(RAMP))
        return sum(self.sequences(s) for s in range(ramped)) + (step - ramped) * self.batch_sequences

    def cooldown_from(self, step: int) -> int | None:
        """Steps of a cool-down that begins at `step`, in proportion to the planned one.

        None where none can begin: in a warm-up, after the planned one's start, in a run with branches (they
        are points of a fit, at fractions of D) or with a cosine (it knows its end from the start).
        """
        last = self.branches[-1]
        if len(self.branches) > 1 or self.kind == "cosine":
            return None
        if not max(1, self.warmup_steps, self.ramp_steps * len(RAMP)) <= step < last.fork:
            return None
        return max(1, round(step * (last.end - last.fork) / last.fork))

    def annealed(self, step: int | None) -> "Schedule":
        """The schedule of a run that money stops: it cools down from `step` on. The same for None."""
        cooldown = None if step is None else self.cooldown_from(step)
        if step is None or cooldown is None:
            return self
        last, end = self.branches[-1], step + cooldown
        return replace(self, branches=(Branch(end / last.end, last.start, step, end),))

    def window(self, step: int, seq_len: int) -> int | None:
        """Tokens that attention reaches back, the present one included; None for all."""
        if step >= self.window_steps:
            return None
        return max(1, seq_len // WINDOWS[len(WINDOWS) * step // self.window_steps])


def schedule_of(
    train: Train, recipe: Recipe, total_steps: int, fractions: tuple[float, ...] = (1.0,)
) -> Schedule:
    """The branches of a run. Raises `UserError` when a branch is too short to have all its parts."""
    ramp_steps = train.batch_ramp_steps if recipe.batch_ramp else 0
    if ramp_steps and train.batch_sequences % max(RAMP):
        raise UserError(
            f"train.batch_sequences: {train.batch_sequences} has no quarter for recipe.batch_ramp to start "
            f"with; the nearest that has is {max(RAMP) * max(1, round(train.batch_sequences / max(RAMP)))}"
        )
    saved, first = ramp_steps * RAMP_SAVES, max(train.warmup_steps, ramp_steps * len(RAMP))
    branches: list[Branch] = []
    for fraction in fractions:
        start = branches[-1].fork if branches else 0
        end = round((total_steps - saved) * fraction + saved)
        fork = end - max(1, round(end * train.cooldown_fraction))
        if not start <= fork or (not branches and fork < first):
            ramp = f", a batch ramp of {ramp_steps * len(RAMP)}" if ramp_steps else ""
            raise UserError(
                f"a branch of {end} steps (fraction {fraction} of {total_steps}) is too short for "
                f"{train.warmup_steps} warm-up steps{ramp} and a cool-down of {train.cooldown_fraction:.0%}; "
                f"make the run longer or lower train.{'batch_ramp_steps' if ramp else 'warmup_steps'}"
            )
        branches.append(Branch(fraction, start, fork, end))
    window_steps = branches[0].fork if recipe.window_warmup else 0
    if recipe.schedule == "cosine":
        branches = [Branch(b.fraction, 0, 0, b.end) for b in branches]
    return Schedule(
        branches=tuple(branches),
        kind=recipe.schedule,
        peak_scale=train.peak_scale(total_steps),
        warmup_steps=train.warmup_steps,
        batch_sequences=train.batch_sequences,
        ramp_steps=ramp_steps,
        window_steps=window_steps,
    )
