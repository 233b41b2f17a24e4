"""Warm-up, stable, decay (WSD), with cool-down branches: several run lengths from one trunk.

A run of D tokens keeps a constant lr on its trunk. A branch that ends at a fraction of D leaves the trunk
for its own linear cool-down; the trunk then goes on from where the branch left it (Hagele et al. 2024).
Four branches cost about 18% more than one run and give four points of L(N, D) instead of one.
"""

from dataclasses import dataclass

from x1_pretrain.errors import UserError


@dataclass(frozen=True)
class Branch:
    """Steps [start, end) of work: the trunk from `start`, the linear cool-down from `fork`."""

    fraction: float
    start: int
    fork: int
    end: int

    def lr_scale(self, step: int, warmup_steps: int) -> float:
        """lr / peak lr at a step counted from 0; never zero, so that no step is wasted."""
        if step >= self.fork:
            return (self.end - step) / (self.end - self.fork + 1)
        return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


@dataclass(frozen=True)
class Schedule:
    branches: tuple[Branch, ...]
    warmup_steps: int

    @property
    def total_steps(self) -> int:
        """Steps of the longest branch: the length of the run."""
        return self.branches[-1].end

    @property
    def work_steps(self) -> int:
        """Steps actually computed, all branches together."""
        return sum(branch.end - branch.start for branch in self.branches)


def wsd(
    total_steps: int,
    warmup_steps: int,
    cooldown_fraction: float,
    fractions: tuple[float, ...] = (1.0,),
) -> Schedule:
    """The branches of a run. Raises `UserError` when a branch is too short to have all its parts."""
    branches: list[Branch] = []
    for fraction in fractions:
        start = branches[-1].fork if branches else 0
        end = round(total_steps * fraction)
        fork = end - max(1, round(end * cooldown_fraction))
        if not start <= fork or (not branches and fork < warmup_steps):
            raise UserError(
                f"a branch of {end} steps (fraction {fraction} of {total_steps}) is too short for "
                f"{warmup_steps} warm-up steps and a cool-down of {cooldown_fraction:.0%}; "
                "make the run longer or lower train.warmup_steps"
            )
        branches.append(Branch(fraction, start, fork, end))
    return Schedule(tuple(branches), warmup_steps)
