"""The training loop: one file, read from top to bottom like the run itself.

What is asked and what is used; data; model; state, fresh or resumed; the loop; what is handed over.
The run may have several cool-down branches (see schedule.py); a plain run is the case of one.

    python -m x1_pretrain.train --config tiny --model A --total-steps 400 --eval-every 100
"""

import argparse
import contextlib
import csv
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

from x1_pretrain import identity, memory, noise_scale, paths, record
from x1_pretrain.budget_guard import Spending
from x1_pretrain.checkpoint import Scratch, exclusive, restore, snapshot, state_hash
from x1_pretrain.corpus.loader import Tokens, TrainLoader, validation_windows
from x1_pretrain.determinism import setup
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.meters import peak, utilisation
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers
from x1_pretrain.progress import ProgressReport
from x1_pretrain.run_log import read_log
from x1_pretrain.run_spec import RunSpec, spec_of
from x1_pretrain.run_state import State
from x1_pretrain.signals import StopRequest
from x1_pretrain.spikes.guard import MARGIN_STEPS, REWIND_STEPS, SpikeGuard
from x1_pretrain.spikes.trainer_watch import TrainerWatch
from x1_pretrain.step import backward, compiled, evaluate, train_step
from x1_pretrain.study import study_from
from x1_pretrain.tracking import Mirror, default_uri, experiment_folder

BUDGET_EXHAUSTED = 4  # exit status of a run that the cap stopped; its checkpoint is valid
MAX_REWINDS = 3  # of one run; then the cause is not one bad batch
KEPT_TO_REWIND = 4  # checkpoints, so that one is far enough back


# ---------------------------------------------------------------- the run


def train(
    spec: RunSpec,
    tokens_dir: Path,
    mlflow_uri: str,
    experiment: str,
    deliver: Callable[[record.Finished], None],
    mlflow_required: bool = False,
) -> record.Finished:
    """Train to the end of the schedule, resuming if a killed run left its state, and `deliver` the result.

    `deliver` writes the outputs while the run's lock is still held: there are never two writers.
    Exits the process, with a valid checkpoint kept, on SIGTERM or Ctrl-C (128 + signal) and when the cap
    is reached (`BUDGET_EXHAUSTED`). Raises `UserError` for bad input, for a loss that is not finite (as
    train.non_finite says) and when memory runs out.
    """
    # Data: which tokens a step reads depends on nothing but (data, seed, step, what a rewind skipped).
    schedule, seq_len, micro_batch = spec.schedule, spec.train.seq_len, spec.train.micro_batch
    tokens = Tokens(tokens_dir)
    tokens.verify()
    loader = TrainLoader(tokens, seq_len, spec.train.batch_sequences, spec.seed)
    validation = validation_windows(tokens, seq_len, spec.train.val_tokens)

    # Device, model, optimizers.
    used = setup(spec.device, spec.seed)
    model = GPT(
        spec.shape,
        spec.recipe,
        tokens.n_vocab,
        seq_len,
        base_width=spec.train.base_width,
        attention=used.attention_used,
        gradient_checkpointing=spec.device.gradient_checkpointing,
    )
    model.initialise(spec.seed).to(used.device)
    optimizers = build_optimizers(model, spec.train, spec.recipe)
    loss_function = compiled(model, used)
    val_windows = torch.from_numpy(validation).to(used.device)

    machine = peak(used)
    fingerprint = identity.fingerprint(spec, used, tokens.data_sha256)
    kept = KEPT_TO_REWIND if spec.train.on_spike == "rewind" else 2
    scratch, outputs = Scratch(spec.stage, fingerprint, kept), Path(".scratch") / f"{spec.output}.lock"
    with exclusive(outputs, "writes the same outputs") as waited_long, scratch.lock() as waited:
        started, started_utc = time.monotonic(), datetime.now(UTC)

        # State: fresh, resumed, or just finished by the process that we waited for.
        found = scratch.latest()
        if found is not None and found[1]["finished"] and scratch.delivered and not (waited or waited_long):
            scratch.clear()  # a forced re-run must train, not copy
            found = None
        state, monitor = State(), SpikeGuard(spec.train.on_spike)
        watch = TrainerWatch(
            monitor, model, optimizers, loss_function, loader, val_windows, micro_batch, used
        )
        if found is not None:
            tensors, saved = found
            state = State(**saved)
            restore(tensors, model, optimizers)
            monitor.load_state_dict(state.monitor)
            if not state.finished:
                state.resumes += 1
                print(f"{spec.run_id}: resuming at step {state.step} of branch {state.branch + 1}")
        log_path, spent_before_s = scratch.folder / "log.csv", state.elapsed_s
        log_stream = log_path.open("a", newline="", encoding="utf-8")
        log = csv.writer(log_stream, lineterminator="\n")

        # Money: what the whole project spent counts, and is written down whatever ends this run.
        spending = Spending(spec.run_id, spec.money)
        flops_left = spec.work_left(tokens.n_vocab, state.branch, state.step)
        spending.guard.refuse_above_cap(flops_left / (machine.flops_per_s * spec.money.assumed_mfu))

        def save(name: str | None = None) -> None:
            log_stream.flush()
            os.fsync(log_stream.fileno())  # the checkpoint says how long the log is
            spending.charge()
            state.log_bytes, state.monitor = log_stream.tell(), monitor.state_dict()
            state.elapsed_s = spent_before_s + time.monotonic() - started
            state.saves += 1
            scratch.save(name or f"step-{state.saves:06d}", snapshot(model, optimizers), asdict(state))

        def cut_log() -> None:
            log_stream.flush()
            log_stream.truncate(state.log_bytes)
            log_stream.seek(0, os.SEEK_END)

        def batch_at(begin: int, count: int) -> Tensor:
            return torch.from_numpy(loader.sequences(state.sequence(begin), count)).to(used.device)

        cut_log()
        first_step, pending = True, []
        with contextlib.ExitStack() as leaving:  # whatever ends the run: the end, an error, a signal
            leaving.enter_context(log_stream)
            leaving.callback(spending.charge)
            leaving.enter_context(memory.explained(spec.run_id, spec.train))
            stop = leaving.enter_context(StopRequest())
            mirror = leaving.enter_context(
                Mirror(mlflow_uri, experiment, spec.run_id, record.mlflow_params(spec), mlflow_required)
            )
            done = schedule.done(state.branch, state.step)
            report = leaving.enter_context(ProgressReport(spec.run_id, schedule.work_steps, done))
            if found is None and "rewind" in (spec.train.non_finite, spec.train.on_spike):
                save()  # the first step may be the bad one
            while not state.finished:
                branch, last = schedule.branches[state.branch], state.branch == len(schedule.branches) - 1
                ended = state.step == branch.end
                model.set_window(schedule.window(state.step, seq_len))

                # Evaluate on the fixed validation range; saved first, so that nothing can be lost here.
                due = last and state.step > 0 and state.step % spec.eval_every == 0
                if (ended or due) and not state.evaluated():
                    save()
                    clock = time.monotonic()
                    val_loss = evaluate(loss_function, val_windows, micro_batch, used)
                    evaluation = {"branch": state.branch, "step": state.step, "val_loss_nats": val_loss}
                    if last and spec.train.noise_batches:
                        size, begin = spec.train.batch_sequences, schedule.begin(state.step)
                        noise = noise_scale.measure(
                            list(model.parameters()),
                            lambda batch: backward(loss_function, batch, micro_batch, used),
                            (batch_at(begin + i * size, size) for i in range(spec.train.noise_batches)),
                            spec.train.batch_tokens,
                        )
                        evaluation |= {"noise": asdict(noise)}
                    state.evaluations.append(evaluation)
                    state.evaluation_s += time.monotonic() - clock
                    mirror.log([*pending, (f"val_loss/{branch.fraction}", val_loss, state.step)])
                    pending.clear()

                # The end of a branch: back to the trunk where this branch left it, or done.
                if ended and last:
                    state.finished = True
                    save()
                    break
                if ended:
                    tensors, trunk = scratch.load(f"trunk-{state.branch}")
                    restore(tensors, model, optimizers)
                    monitor.load_state_dict(trunk["monitor"])
                    state.branch, state.step = state.branch + 1, trunk["step"]
                    state.skipped_data = trunk["skipped_data"]
                    continue

                # Here the branch leaves the trunk; the next branch starts from this state.
                if state.step == branch.fork and not last:
                    save(f"trunk-{state.branch}")
                if state.step % spec.train.checkpoint_every == 0 and state.step > branch.start:
                    save()
                if stop.status is not None:
                    save()
                    print(f"{spec.run_id}: stopped by a signal, saved at step {state.step}", file=sys.stderr)
                    sys.exit(stop.status)
                if spending.exhausted():
                    save()
                    print(
                        f"{spec.run_id}: the cap of {spec.money.cap_usd} $ is reached at step {state.step}; "
                        "the checkpoint is kept, raise money.cap_usd and run the same command to go on",
                        file=sys.stderr,
                    )
                    sys.exit(BUDGET_EXHAUSTED)

                clock = time.monotonic()
                batch = batch_at(schedule.begin(state.step), schedule.sequences(state.step))
                lr_scale = schedule.lr_scale(branch, state.step)
                eyes = (monitor.vetoes, watch.look(state.step + 1))
                result = train_step(
                    loss_function, model, optimizers, batch, spec.train, lr_scale, used, *eyes
                )
                took_s = time.monotonic() - clock

                # Not finite: nothing was updated yet. Stop, go on without this update, or go back and
                # leave this batch out of the data.
                if not result.finite:
                    what = f"{spec.run_id}: not finite at step {state.step + 1} ({result})"
                    if spec.train.non_finite == "rewind" and len(state.skipped_data) < MAX_REWINDS:
                        bad = [state.sequence(schedule.begin(state.step)), len(batch)]
                        skipped, (tensors, saved) = [*state.skipped_data, bad], scratch.rewind_point()
                        restore(tensors, model, optimizers)
                        state = State(**{**saved, "skipped_data": sorted(skipped)})
                        monitor.load_state_dict(state.monitor)
                        cut_log()
                        print(f"{what}; back at step {state.step}, batch {bad} left out", file=sys.stderr)
                        continue
                    if spec.train.non_finite != "skip":
                        raise UserError(
                            f"{what}; the optimizer was not touched and the last checkpoint is kept; lower "
                            "the lr, look at the data, or set train.non_finite to skip"
                        )
                    print(f"{what}; this update is left out", file=sys.stderr)
                    state.skipped_steps += 1

                step_flops = spec.flops(tokens.n_vocab, state.step, state.step + 1)
                state.step += 1
                if first_step:  # compilation, or loading what an earlier stage compiled
                    state.compile_s, first_step = state.compile_s + took_s, False
                else:
                    state.training_s += took_s
                    state.timed_tokens += len(batch) * seq_len
                    state.timed_flops += step_flops

                # What the step says of the run. An alarm is a note; a spike is what held-out text confirms.
                state.skipped_steps += not result.updated
                first_sequence = state.sequence(schedule.begin(state.step - 1))
                data = [first_sequence, len(batch), int(result.finite and result.updated)]
                log.writerow([state.branch, state.step, lr_scale, result.loss_nats, result.grad_norm, *data])
                spike = watch.after_step(state, result, batch, first_sequence)
                if spike is not None and monitor.policy == "rewind":
                    if state.rewinds >= MAX_REWINDS:
                        raise UserError(
                            f"{spec.run_id}: {spike}, after {MAX_REWINDS} rewinds; the last checkpoint is "
                            "kept, find the cause or set train.on_spike to observe"
                        )
                    # Up to the present step: the last flagged one need not be the last bad one.
                    bad_steps = (spike.first_step - 1 - MARGIN_STEPS, state.step + MARGIN_STEPS)
                    first, end = (state.sequence(schedule.begin(max(0, step))) for step in bad_steps)
                    tensors, saved = scratch.rewind_point(spike.first_step - REWIND_STEPS)
                    restore(tensors, model, optimizers)
                    state = state.rewound(saved, spike.as_record(state.branch, "rewind"), first, end)
                    monitor.load_state_dict(state.monitor)
                    cut_log()
                    print(f"{spec.run_id}: {spike}; back at step {state.step}", file=sys.stderr)
                    continue
                if spike is not None:
                    state.spikes.append(spike.as_record(state.branch, monitor.policy))
                if last or state.step <= branch.fork:
                    pending.append(("train_loss", result.loss_nats, state.step))
                report.step(schedule.done(state.branch, state.step), f"loss {result.loss_nats:.3f}")

        # What the run hands over.
        finished = record.Finished(
            spec=spec,
            used=used,
            model=model,
            tokens=tokens,
            val_bytes=int(tokens.token_bytes[validation[:, 1:]].sum()),
            log=read_log(log_path),
            evaluations=state.evaluations,
            alarms=state.alarms,
            spikes=state.spikes,
            vitals=state.vitals,
            skipped_steps=state.skipped_steps,
            skipped_data=state.skipped_data,
            fingerprint=fingerprint,
            state_sha256=state_hash(snapshot(model, optimizers)),
            measured={
                "stage": spec.stage,
                "run_id": spec.run_id,
                "fingerprint": fingerprint,
                "started_utc": started_utc.isoformat(timespec="seconds"),
                "elapsed_s": round(state.elapsed_s, 3),
                "training_s": round(state.training_s, 3),
                "evaluation_s": round(state.evaluation_s, 3),
                "compile_s": round(state.compile_s, 3),
                **asdict(utilisation(machine, state.timed_tokens, state.timed_flops, state.training_s)),
                "resumes": state.resumes,
                "peak_memory_bytes": memory.peak_memory_bytes(used),
                "mlflow_run_id": mirror.mlflow_run_id,
            },
        )
        deliver(finished)
        scratch.mark_delivered()
        return finished


# ---------------------------------------------------------------- the command


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m x1_pretrain.train", description=__doc__)
    parser.add_argument("--config", default="tiny", help="a profile, its file, or a file like params.yaml")
    parser.add_argument("--model", help="a model of the profile (default: the one selected)")
    parser.add_argument("--total-steps", type=int, help="default: flops / 6N tokens")
    parser.add_argument("--eval-every", type=int, help="steps between evaluations")
    parser.add_argument("--mlflow-uri", help="`off` for no mirror; default: mlflow.db of the project")
    parser.add_argument("--mlflow-experiment", help="default: the run's id; also names the output folder")
    parser.add_argument("--tokens", type=Path, default=paths.TOKENS, help="folder of token shards")
    arguments = parser.parse_args(argv)
    for name in ("total_steps", "eval_every"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    study = study_from(arguments.config)
    model = arguments.model or study.choice.model
    experiment = arguments.mlflow_experiment or f"{model}-seed{study.choice.seed}"
    folder, given = experiment_folder(experiment), arguments.mlflow_uri
    spec = spec_of(
        study,
        model,
        "command",
        folder.as_posix().replace("/", "-"),
        total_steps=arguments.total_steps,
        eval_every=arguments.eval_every,
    )

    def deliver(finished: record.Finished) -> None:
        record.write_run(finished, folder / "checkpoint", folder / "metrics.json", folder / "curve.csv")
        record.write_measured(finished, folder / "measured.json")

    finished = train(
        spec, arguments.tokens, given or default_uri(), experiment, deliver, mlflow_required=bool(given)
    )
    print(f"{spec.run_id}: val loss {finished.val_loss_nats:.4f} nats, written to {folder}/")


if __name__ == "__main__":
    main()
