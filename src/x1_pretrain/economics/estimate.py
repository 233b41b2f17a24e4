"""What a study would compute, run by run, from its configuration alone: the preflight's input."""

import re
from dataclasses import dataclass

from x1_pretrain.config import Profile
from x1_pretrain.economics.flops import (
    forward_flops_per_token,
    training_flops_per_token,
)
from x1_pretrain.errors import UserError
from x1_pretrain.run_spec import planned_steps
from x1_pretrain.schedule import wsd
from x1_pretrain.study import Study

GPT2_VOCAB = 50257


@dataclass(frozen=True)
class Work:
    """One run: its tokens, and its counted FLOPs with evaluations."""

    name: str
    tokens: int
    flops_per_token: int
    evaluation_flops: int

    @property
    def flops(self) -> int:
        return self.tokens * self.flops_per_token + self.evaluation_flops


def n_vocab_of(tokenizer: str) -> int:
    """Vocabulary of `gpt2` or `gpt2:<size>`. Raises `UserError` for another name."""
    match = re.fullmatch(r"gpt2(?::([1-9]\d*))?", tokenizer)
    if not match:
        raise UserError(f"tokenizer.name: {tokenizer!r} is not valid; choose gpt2 or gpt2:<size>")
    return int(match[1]) if match[1] else GPT2_VOCAB


def _work(
    profile: Profile,
    name: str,
    model: str,
    fractions: tuple[float, ...],
    steps: int | None,
    runs: int,
) -> Work:
    shape, train = profile.models[model], profile.train
    arguments = (
        shape.n_layer,
        shape.d_model,
        shape.n_head,
        shape.n_kv_head,
        n_vocab_of(profile.tokenizer.name),
        train.seq_len,
    )
    if steps is None:
        total_steps = planned_steps(shape, train)
        schedule = wsd(total_steps, train.warmup_steps, train.cooldown_fraction, fractions)
        steps, evaluations = schedule.work_steps, max(train.evaluations, len(fractions))
    else:
        evaluations = 1
    evaluation_flops = evaluations * train.val_tokens * forward_flops_per_token(*arguments)
    return Work(
        name=name,
        tokens=runs * steps * train.batch_tokens,
        flops_per_token=training_flops_per_token(*arguments),
        evaluation_flops=runs * evaluation_flops,
    )


def work_of(study: Study, model: str | None = None) -> list[Work]:
    """The runs of the whole study, or only the training of `model`.

    A sweep run includes its cool-down branches; the spike lab counts its incident and one replay.
    Raises `UserError` for an unknown model or a run too short for its schedule.
    """
    profile = study.profile
    if model is not None:
        study.shape_of(model)
        return [_work(profile, f"train {model}", model, (1.0,), None, 1)]
    chosen = study.choice.model
    runs = [_work(profile, f"train {chosen}", chosen, (1.0,), None, 1)]
    for swept in study.choice.sweep.models:
        runs.append(_work(profile, f"sweep {swept}", swept, profile.sweep.branches, None, 1))
    model = study.choice.spike.model
    runs.append(_work(profile, f"spike {model}", model, (1.0,), profile.spike.steps, 2))
    return runs
