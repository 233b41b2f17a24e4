"""What a run is asked to be: everything that decides its bits, and the money it may cost."""

from dataclasses import dataclass

from x1_pretrain.config import Device, ModelShape, Money, Recipe, Study, Train
from x1_pretrain.schedule import Schedule, wsd


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides the bits of a run, and the money it may cost."""

    stage: str
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


def spec_of(
    study: Study,
    model: str,
    stage: str,
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
