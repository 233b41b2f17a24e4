"""What a run is asked to be: everything that decides its bits, and the money it may cost."""

from dataclasses import dataclass

from x1_pretrain.config import Device, Money, Train
from x1_pretrain.economics.flops import training_flops_per_token
from x1_pretrain.errors import UserError
from x1_pretrain.schedule import RAMP_SAVES, Schedule, schedule_of
from x1_pretrain.shape import ModelShape, Recipe
from x1_pretrain.study import Study


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides the bits of a run, and the money it may cost."""

    stage: str
    output: str  # names what it writes: no two runs of one output at a time
    run_id: str
    profile: str
    model: str
    seed: int
    shape: ModelShape
    recipe: Recipe
    train: Train
    device: Device
    money: Money
    schedule: Schedule
    eval_every: int

    def __post_init__(self) -> None:
        batch = self.schedule.sequences(0)
        if batch % self.train.micro_batch and self.train.micro_batch % batch:
            divisors = [m for m in range(1, batch + 1) if batch % m == 0]
            nearest = min(divisors, key=lambda m: abs(m - self.train.micro_batch))
            raise UserError(
                f"train.micro_batch: {self.train.micro_batch} does not divide the {batch} sequences that "
                f"recipe.batch_ramp starts with; the nearest that does is {nearest}"
            )

    @property
    def N(self) -> int:
        """Non-embedding parameters, exactly, whatever the activation."""
        return self.shape.N_of(self.recipe.activation)

    def tokens(self, steps: int) -> int:
        """Tokens trained on after so many steps of the trunk and one branch."""
        return self.schedule.begin(steps) * self.train.seq_len

    def flops(self, n_vocab: int, first: int, end: int) -> int:
        """Counted FLOPs of the steps [first, end), head and attention included."""
        shape, seq_len = self.shape, self.train.seq_len
        sizes = (shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head, n_vocab, seq_len)
        per_token = {
            window: training_flops_per_token(*sizes, activation=self.recipe.activation, window=window)
            for window in {self.schedule.window(step, seq_len) for step in range(first, end)}
        }
        tokens = dict.fromkeys(per_token, 0)
        for step in range(first, end):
            tokens[self.schedule.window(step, seq_len)] += self.schedule.sequences(step) * seq_len
        return sum(tokens[window] * per_token[window] for window in tokens)

    def work_left(self, n_vocab: int, branch: int, step: int) -> int:
        """Counted FLOPs from `step` of a branch to the end of the run, later branches included."""
        first = self.schedule.branches[branch]
        later = self.schedule.branches[branch + 1 :]
        return self.flops(n_vocab, step, first.end) + sum(self.flops(n_vocab, b.start, b.end) for b in later)


def spec_of(
    study: Study,
    model: str,
    stage: str,
    output: str,
    fractions: tuple[float, ...] = (1.0,),
    total_steps: int | None = None,
    eval_every: int | None = None,
) -> RunSpec:
    """The run of one model of a study: D = flops / 6N tokens unless `total_steps` says otherwise."""
    shape, train, recipe = study.shape_of(model), study.profile.train, study.choice.recipe
    if total_steps is None:
        total_steps = planned_steps(shape, train, recipe)
    return RunSpec(
        stage=stage,
        output=output,
        run_id=f"{model}-seed{study.choice.seed}",
        profile=study.choice.profile,
        model=model,
        seed=study.choice.seed,
        shape=shape,
        recipe=recipe,
        train=train,
        device=study.profile.device,
        money=study.profile.money,
        schedule=schedule_of(train, recipe, total_steps, fractions),
        eval_every=eval_every or -(-total_steps // train.evaluations),
    )


def planned_steps(shape: ModelShape, train: Train, recipe: Recipe) -> int:
    """Whole optimizer steps nearest to D = C / 6N tokens, N of the reference block.

    A batch ramp takes more steps for the same tokens. Runs that differ in the recipe alone read the same
    number of tokens.
    """
    saved = train.batch_ramp_steps * RAMP_SAVES if recipe.batch_ramp else 0
    return max(1, round(shape.flops / (6 * shape.N) / train.batch_tokens + saved))


def planned_tokens(shape: ModelShape, train: Train, recipe: Recipe) -> int:
    """D: the tokens of those steps."""
    steps = planned_steps(shape, train, recipe)
    return schedule_of(train, recipe, steps).begin(steps) * train.seq_len
