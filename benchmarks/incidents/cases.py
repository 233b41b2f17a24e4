"""One incident of the benchmark: a tiny run, spoiled in one way, diagnosed, and compared with the truth.

Runs of one size and seed share what comes before the incident.
"""

import dataclasses
from dataclasses import dataclass

from incidents.text import N_VOCAB, Text, standard_library
from x1_pretrain import determinism
from x1_pretrain.config import Device, Train
from x1_pretrain.shape import ModelShape, Recipe
from x1_pretrain.spikes.data_tests import Corpus, count_corpus, rarest_ids
from x1_pretrain.spikes.injections import KINDS, Injection
from x1_pretrain.spikes.investigation import Investigation, Suspicion, investigate, suspicion
from x1_pretrain.spikes.lab import Lab, Stream
from x1_pretrain.spikes.monitor import SpikeMonitor
from x1_pretrain.spikes.trainer import TorchTrainer
from x1_pretrain.spikes.watch import Progress, calm_run, states_around, watch

SIZES = {
    "small": ModelShape(n_layer=2, d_model=32, n_head=1, n_kv_head=1, flops=1e9),
    "large": ModelShape(n_layer=3, d_model=64, n_head=2, n_kv_head=2, flops=1e9),
}
SEQ_LEN, ROWS, PROBE_BATCHES = 64, 16, 3
CALM_STEPS, STEPS = 200, 240  # before the incident; until it must be confirmed
FIRST = 210  # of the incident; seeds move it, and the number of spoiled batches
CLEAN = "clean"
NO_CAUSE = ("benign", "undetermined")


@dataclass(frozen=True)
class Result:
    """What was injected and what was said; `detected_step` is None if there was no incident."""

    size: str
    seed: int
    injection: str
    detected_step: int | None
    cause: str | None
    subtype: str | None
    right: bool
    range_right: bool | None  # None where no batches were spoiled
    against: int | None
    confidence: float | None
    rule: str | None


@dataclass(frozen=True)
class Setting:
    """What all cases of the benchmark share."""

    text: Text
    corpus: Corpus
    train: Train
    recipe: Recipe
    used: determinism.Used


def setting(train: Train, recipe: Recipe) -> Setting:
    """Eager fp32 on one thread: the bits are the same on every call."""
    device = Device("cpu", 1, "fp32", compile=False, attention="sdpa", gradient_checkpointing=False)
    text = standard_library(SEQ_LEN)
    small = dataclasses.replace(train, seq_len=SEQ_LEN, batch_sequences=ROWS, micro_batch=ROWS)
    corpus = count_corpus([text.ids], N_VOCAB)
    return Setting(text, corpus, small, recipe, determinism.setup(device, 0))


def lab_of(shared: Setting, size: str, seed: int, kind: str) -> Lab:
    """The lab of one case; a clean one has an injection that never comes."""
    first = FIRST + seed % 3
    injection = Injection(
        kind="garbage" if kind == CLEAN else kind,
        first=first,
        last=first + 2 + seed % 3,
        n_vocab=N_VOCAB,
        seed=seed,
        rare_ids=rarest_ids(shared.corpus),
    )
    if kind == CLEAN:
        injection = injection.never()
    train, recipe = injection.settings(shared.train, shared.recipe)
    trainer = TorchTrainer(SIZES[size], recipe, train, N_VOCAB, seed, shared.used)
    stream = Stream(lambda number: shared.text.batch(number, ROWS, seed), injection)
    probes = shared.text.held_out(ROWS, PROBE_BATCHES)
    return Lab(trainer, stream, probes, train.warmup_steps, train.peak_scale(STEPS))


def calm_key(kind: str) -> str:
    """Kinds with one key share the run before the incident."""
    if kind == CLEAN or KINDS[kind].adamw_beta2 is None:
        return "as it is"
    return kind


def run_case(
    shared: Setting, size: str, seed: int, kind: str, calm: dict[str, Progress]
) -> tuple[Result, Investigation | None]:
    """One case; `calm` keeps the shared beginnings of this size and seed."""
    lab, key = lab_of(shared, size, seed, kind), calm_key(kind)
    if key not in calm:
        calm[key] = calm_run(lab, SpikeMonitor(), CALM_STEPS)
    monitor = SpikeMonitor()
    incident = watch(lab, monitor, STEPS, start=calm[key])
    if kind == CLEAN:
        return _clean(shared, lab, size, seed, calm[key], incident is not None)
    injection = lab.stream.injection
    if incident is None:
        return Result(size, seed, kind, None, None, None, False, None, None, None, None), None
    found = investigate(lab, shared.corpus, suspicion(incident), monitor)
    verdict, truth = found.verdict, injection.truth
    on_batches = truth.on == "batch"
    return Result(
        size=size,
        seed=seed,
        injection=kind,
        detected_step=incident.alarms[0].step,
        cause=verdict.cause,
        subtype=verdict.subtype,
        right=(verdict.cause, verdict.subtype) == (truth.cause, truth.subtype),
        range_right=found.offending == (injection.first, injection.last) if on_batches else None,
        against=verdict.arms - verdict.agreeing,
        confidence=verdict.confidence,
        rule=verdict.rule,
    ), found


def _clean(
    shared: Setting, lab: Lab, size: str, seed: int, calm: Progress, alarmed: bool
) -> tuple[Result, Investigation]:
    """Nothing was done: there must be no incident, and steps under suspicion must not be found guilty."""
    first = FIRST + seed % 3
    rows = list(calm.rows)
    lab.trainer.restore(calm.states[-1].snapshot)
    rows += lab.train(range(CALM_STEPS + 1, first + 8), watch=True, live=True)
    around = states_around(list(calm.states), first)
    if around is None:
        raise RuntimeError("the calm run has too few states")
    case = Suspicion(tuple(rows), first, first + 3, False, *around)
    found = investigate(lab, shared.corpus, case, SpikeMonitor())
    verdict = found.verdict
    return Result(
        size=size,
        seed=seed,
        injection=CLEAN,
        detected_step=first if alarmed else None,
        cause=verdict.cause,
        subtype=verdict.subtype,
        right=not alarmed and verdict.cause in NO_CAUSE,
        range_right=None,
        against=verdict.arms - verdict.agreeing,
        confidence=verdict.confidence,
        rule=verdict.rule,
    ), found
