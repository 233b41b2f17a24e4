"""Stage `spike` from end to end: the lab is set up as any run is, and its findings are written."""

import time
from datetime import UTC, datetime
from pathlib import Path

from x1_pretrain import determinism
from x1_pretrain.corpus.loader import Tokens, TrainLoader, validation_windows
from x1_pretrain.corpus.tokenizer import load_saved_tokenizer
from x1_pretrain.deliverables.files import write_bytes, write_json, write_text
from x1_pretrain.spikes.arrays import log_csv, npz, token_counts
from x1_pretrain.spikes.data_tests import Corpus, count_corpus, rarest_ids
from x1_pretrain.spikes.incident import run_incident
from x1_pretrain.spikes.injections import Injection
from x1_pretrain.spikes.lab import Lab, Stream
from x1_pretrain.spikes.limits import check_spike
from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor
from x1_pretrain.spikes.record import Facts, Text, as_json, series
from x1_pretrain.spikes.trainer import TorchTrainer
from x1_pretrain.study import Study

PROBE_BATCHES = 4
# Enough for bigrams, and the same time for any corpus: 16 pieces spread over the train split.
CORPUS_PIECES, CORPUS_TOKENS = 16, 4_000_000


def run_spike_lab(study: Study, tokens_dir: Path, incident_dir: Path, measured: Path) -> None:
    """Run the incident of `study` and write log.csv, incident.json, histogram.npz, and `measured`.

    Only `measured` holds the time, and incident.json where the profile's documents may. Raises `UserError` if
    the profile's spike section cannot work.
    """
    start = time.monotonic()
    profile, seed = study.profile, study.choice.seed
    check_spike(profile)
    tokens = Tokens(tokens_dir)
    corpus = _count(tokens)
    lab = _build_lab(study, tokens, corpus)
    noticed: dict[int, str] = {}

    def notice(alarm: Alarm) -> None:
        noticed[alarm.step] = datetime.now(UTC).isoformat(timespec="seconds")

    train, recipe = lab.stream.injection.settings(profile.train, study.choice.recipe)
    findings = run_incident(lab, corpus, SpikeMonitor(), profile.spike.steps, train.grad_clip, notice)
    model = study.choice.spike.model
    facts = Facts(
        run_id=f"spike-{model}-seed{seed}",
        model=model,
        seed=seed,
        N=study.shape_of(model).N,
        steps=profile.spike.steps,
        batch_tokens=train.batch_tokens,
        warmup_steps=train.warmup_steps,
        peak_lr=train.peak_lr(recipe.optimizer),
    )
    tokenizer = load_saved_tokenizer(tokens_dir)
    loader = _loader(study, tokens)
    text = Text(tokenizer.decode, lambda number: loader.document_ids(number - 1)[0])
    spike = as_json(findings, facts, lab.stream, corpus, text)
    first = findings.incident.alarms[0].step
    if profile.money.wall_clock_in_documents:
        spike["detection"]["detected_utc"] = noticed[first]
    write_json(incident_dir / "incident.json", {"spike": spike, "series": series(findings)})
    write_text(incident_dir / "log.csv", log_csv(findings, facts.peak_lr))
    counts = token_counts(lab.stream, findings.found.offending)
    write_bytes(incident_dir / "histogram.npz", npz(batch=counts, corpus=corpus.unigrams))
    elapsed_s = round(time.monotonic() - start, 3)
    write_json(
        measured,
        {"detected_utc": noticed[first], "elapsed_s": elapsed_s, "run_id": facts.run_id},
    )


def _loader(study: Study, tokens: Tokens) -> TrainLoader:
    train = study.profile.train
    return TrainLoader(tokens, train.seq_len, train.batch_sequences, study.choice.seed)


def _build_lab(study: Study, tokens: Tokens, corpus: Corpus) -> Lab:
    profile, seed = study.profile, study.choice.seed
    train, spike = profile.train, profile.spike
    injection = Injection(
        kind=study.choice.spike.injection,
        first=spike.at_step,
        last=spike.at_step + spike.batches - 1,
        n_vocab=tokens.n_vocab,
        seed=seed,
        rare_ids=rarest_ids(corpus),
    )
    train, recipe = injection.settings(train, study.choice.recipe)
    used = determinism.setup(profile.device, seed)
    loader = _loader(study, tokens)
    stream = Stream(lambda number: loader.batch(number - 1), injection)
    rows = train.batch_sequences
    held_out = validation_windows(tokens, train.seq_len, PROBE_BATCHES * train.batch_tokens)
    probes = tuple(held_out[i * rows : (i + 1) * rows] for i in range(PROBE_BATCHES))
    shape = study.shape_of(study.choice.spike.model)
    trainer = TorchTrainer(shape, recipe, train, tokens.n_vocab, seed, used)
    peak_scale = train.peak_scale(spike.steps)
    return Lab(trainer, stream, probes, train.warmup_steps, peak_scale, bit_stable=used.deterministic)


def _count(tokens: Tokens) -> Corpus:
    total = tokens.count("train")
    length = min(total // CORPUS_PIECES, CORPUS_TOKENS // CORPUS_PIECES)
    starts = [total * piece // CORPUS_PIECES for piece in range(CORPUS_PIECES)]
    return count_corpus((tokens.read("train", start, length) for start in starts), tokens.n_vocab)
