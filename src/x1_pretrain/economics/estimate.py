"""What a run, or a study, would compute and how long that takes, from its configuration alone."""

import re
from dataclasses import dataclass, replace

from x1_pretrain.economics.flops import forward_flops_per_token
from x1_pretrain.errors import UserError
from x1_pretrain.run_spec import RunSpec, spec_of
from x1_pretrain.study import Study

GPT2_VOCAB = 50257

# Assumed, and said to be: from a cold start to the second step (imports, data checked, compilation; 13 to
# 29 s of it were compilation in docs/log.md), and what a network disk takes in.
STARTUP_S = 60.0
DISK_BYTES_PER_S = 200e6
BYTES_PER_PARAMETER = 12  # of a checkpoint: fp32 weight and at most two moments

# The spike lab's incident, its replays and its remedies, each carried on to the end, in runs of its length:
# 3.7 in `tiny`, 4.8 in `smoke`, where the incident comes earlier. Held-out batches every so many steps.
LAB_RUNS, LAB_PROBE_EVERY, LAB_PROBE_BATCHES = 5, 10, 4


@dataclass(frozen=True)
class Work:
    """One run, or what is left of it: tokens, counted FLOPs, bytes of checkpoints, starts of a process."""

    name: str
    tokens: int
    training_flops: int
    evaluation_flops: int
    checkpoint_bytes: int = 0
    startup_s: float = STARTUP_S

    @property
    def flops(self) -> int:
        return self.training_flops + self.evaluation_flops

    def times(self, count: int) -> "Work":
        """So many of it by one process, which starts once."""
        return replace(
            self,
            tokens=count * self.tokens,
            training_flops=count * self.training_flops,
            evaluation_flops=count * self.evaluation_flops,
            checkpoint_bytes=count * self.checkpoint_bytes,
        )

    @property
    def fixed_s(self) -> float:
        """Seconds that no faster card would save: the start and the checkpoints."""
        return self.startup_s + self.checkpoint_bytes / DISK_BYTES_PER_S


def n_vocab_of(tokenizer: str) -> int:
    """Vocabulary of `gpt2` or `gpt2:<size>`. Raises `UserError` for another name."""
    match = re.fullmatch(r"gpt2(?::([1-9]\d*))?", tokenizer)
    if not match:
        raise UserError(f"tokenizer.name: {tokenizer!r} is not valid; choose gpt2 or gpt2:<size>")
    return int(match[1]) if match[1] else GPT2_VOCAB


def _forward(spec: RunSpec, n_vocab: int) -> int:
    """FLOPs of a token's forward pass."""
    shape = spec.shape
    sizes = (shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head, n_vocab, spec.train.seq_len)
    return forward_flops_per_token(*sizes, activation=spec.recipe.activation)


def work_left(
    spec: RunSpec, name: str, n_vocab: int, branch: int = 0, step: int = 0, evaluated: int = 0
) -> Work:
    """What a run still has to do from `step` of a branch on, `evaluated` evaluations being done."""
    train, branches = spec.train, spec.schedule.branches
    forward = _forward(spec, n_vocab)
    noise = 3 * forward * train.noise_batches * train.batch_tokens  # a forward and a backward pass
    evaluations = max(0, max(train.evaluations, len(branches)) - evaluated)
    first, later = branches[branch], branches[branch + 1 :]
    steps = first.end - step + sum(b.end - b.start for b in later)
    tokens = spec.tokens(first.end) - spec.tokens(step)
    n_params = spec.N + 2 * n_vocab * spec.shape.d_model
    saves = steps // train.checkpoint_every + evaluations + 1
    return Work(
        name=name,
        tokens=tokens + sum(spec.tokens(b.end) - spec.tokens(b.start) for b in later),
        training_flops=spec.work_left(n_vocab, branch, step),
        evaluation_flops=evaluations * (train.val_tokens * forward + noise),
        checkpoint_bytes=saves * n_params * BYTES_PER_PARAMETER,
    )


def _lab_work(study: Study, spec: RunSpec, n_vocab: int) -> Work:
    """The spike lab: it evaluates no validation range, measures no noise and saves nothing."""
    steps = LAB_RUNS * study.profile.spike.steps
    probes = LAB_PROBE_BATCHES * (steps // LAB_PROBE_EVERY)
    forward, tokens = _forward(spec, n_vocab), steps * spec.train.batch_tokens
    return Work(
        f"spike {spec.model}", tokens, 3 * forward * tokens, forward * probes * spec.train.batch_tokens
    )


def work_of(study: Study, model: str | None = None) -> list[Work]:
    """The runs of the whole study, or only the training of `model`.

    A sweep run includes its branches and further seeds, the spike lab its replays and continuations.
    Raises `UserError` for an unknown model or a run too short for its schedule.
    """
    chosen, choice = model or study.choice.model, study.choice
    n_vocab = n_vocab_of(study.profile.tokenizer.name)
    runs = [work_left(spec_of(study, chosen, "train", "train"), f"train {chosen}", n_vocab)]
    if model is not None:
        return runs
    for swept in choice.sweep.models:
        spec = spec_of(study, swept, "sweep", swept, study.profile.sweep.branches)
        runs.append(work_left(spec, f"sweep {swept}", n_vocab).times(choice.sweep.seeds))
    spec = spec_of(study, choice.spike.model, "spike", "spike", total_steps=study.profile.spike.steps)
    return [*runs, _lab_work(study, spec, n_vocab)]
