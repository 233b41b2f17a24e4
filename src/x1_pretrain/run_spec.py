"""What a run is asked to be: everything that decides its bits, and the money it may cost."""

from dataclasses import dataclass

from x1_pretrain.config import Device, ModelShape, Money, Recipe, Train
from x1_pretrain.economics.flops import training_flops_per_token
from x1_pretrain.schedule import Schedule, wsd
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

    def flops_per_token(self, n_vocab: int) -> int:
        """Counted FLOPs per trained token, head and attention included."""
        shape = self.shape
        sizes = (shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head)
        return training_flops_per_token(*sizes, n_vocab, self.train.seq_len)


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
    shape, train = study.shape_of(model), study.profile.train
    if total_steps is None:
        total_steps = planned_steps(shape, train)
    return RunSpec(
        stage=stage,
        output=output,
        run_id=f"{model}-seed{study.choice.seed}",
        profile=study.choice.profile,
        model=model,
        seed=study.choice.seed,
        shape=shape,
        recipe=study.choice.recipe,
        train=train,
        device=study.profile.device,
        money=study.profile.money,
        schedule=wsd(total_steps, train.warmup_steps, train.cooldown_fraction, fractions),
        eval_every=eval_every or -(-total_steps // train.evaluations),
    )


def planned_steps(shape: ModelShape, train: Train) -> int:
    """Whole optimizer steps nearest to D = C / 6N tokens."""
    return max(1, round(shape.flops / (6 * shape.N) / train.batch_tokens))
