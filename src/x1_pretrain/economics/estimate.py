"""What a study would compute, run by run, from its configuration alone: the preflight's input."""

import re
from dataclasses import dataclass

from x1_pretrain.economics.flops import forward_flops_per_token
from x1_pretrain.errors import UserError
from x1_pretrain.run_spec import RunSpec, spec_of
from x1_pretrain.study import Study

GPT2_VOCAB = 50257


@dataclass(frozen=True)
class Work:
    """One run: its tokens, and its counted FLOPs with evaluations."""

    name: str
    tokens: int
    training_flops: int
    evaluation_flops: int

    @property
    def flops(self) -> int:
        return self.training_flops + self.evaluation_flops


def n_vocab_of(tokenizer: str) -> int:
    """Vocabulary of `gpt2` or `gpt2:<size>`. Raises `UserError` for another name."""
    match = re.fullmatch(r"gpt2(?::([1-9]\d*))?", tokenizer)
    if not match:
        raise UserError(f"tokenizer.name: {tokenizer!r} is not valid; choose gpt2 or gpt2:<size>")
    return int(match[1]) if match[1] else GPT2_VOCAB


def _work(study: Study, name: str, spec: RunSpec, runs: int = 1) -> Work:
    """What a run of the trainer computes, its evaluations included, `runs` times."""
    shape, train = spec.shape, spec.train
    n_vocab = n_vocab_of(study.profile.tokenizer.name)
    sizes = (shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head, n_vocab, train.seq_len)
    forward = forward_flops_per_token(*sizes, activation=spec.recipe.activation)
    evaluations = max(train.evaluations, len(spec.schedule.branches))
    noise = 3 * forward * train.noise_batches * train.batch_tokens  # a forward and a backward pass
    tokens = sum(spec.tokens(b.end) - spec.tokens(b.start) for b in spec.schedule.branches)
    flops = spec.work_left(n_vocab, 0, 0)
    evaluation = evaluations * (train.val_tokens * forward + noise)
    return Work(name, runs * tokens, runs * flops, runs * evaluation)


# The spike lab's incident, its replays and its remedies, each carried on to the end, in runs of its length:
# 3.7 in `tiny`, 4.8 in `smoke`, where the incident comes earlier.
SPIKE_RUNS = 5


def work_of(study: Study, model: str | None = None) -> list[Work]:
    """The runs of the whole study, or only the training of `model`.

    A sweep run includes its cool-down branches; the spike lab counts its incident and its replays.
    Raises `UserError` for an unknown model or a run too short for its schedule.
    """
    chosen, choice = model or study.choice.model, study.choice
    runs = [_work(study, f"train {chosen}", spec_of(study, chosen, "train", "train"))]
    if model is not None:
        return runs
    fractions = study.profile.sweep.branches
    for swept in choice.sweep.models:
        runs.append(_work(study, f"sweep {swept}", spec_of(study, swept, "sweep", swept, fractions)))
    steps, spiked = study.profile.spike.steps, choice.spike.model
    spike = spec_of(study, spiked, "spike", "spike", total_steps=steps)
    return [*runs, _work(study, f"spike {spiked}", spike, runs=SPIKE_RUNS)]
