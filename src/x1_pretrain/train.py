"""The training loop: one file, read from top to bottom like the run itself.

What is asked and what is used; data; model; state, fresh or resumed; the loop; what is handed over.
The run may have several cool-down branches (see schedule.py); a plain run is the case of one.

    python -m x1_pretrain.train --config tiny --model A --total-steps 400 --eval-every 100
"""

import argparse
import contextlib
import csv
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from x1_pretrain import identity, paths, record
from x1_pretrain.budget_guard import BudgetGuard
from x1_pretrain.checkpoint import Scratch, exclusive, restore, snapshot, state_hash
from x1_pretrain.config import Train
from x1_pretrain.corpus.loader import Tokens, TrainLoader, validation_windows
from x1_pretrain.determinism import Used, setup
from x1_pretrain.economics.ledger import Ledger
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.meters import peak, peak_memory_bytes, utilisation
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers, set_lr
from x1_pretrain.progress import ProgressReport
from x1_pretrain.run_spec import RunSpec, spec_of
from x1_pretrain.spikes.monitor import SpikeMonitor
from x1_pretrain.study import study_from
from x1_pretrain.tracking import Mirror, default_uri, experiment_folder

BUDGET_EXHAUSTED = 4  # exit status of a run that the cap stopped; its checkpoint is valid

LossFunction = Callable[[Tensor, Tensor, str], Tensor]


# ---------------------------------------------------------------- one step, one evaluation


@dataclass(frozen=True)
class StepResult:
    """Mean loss over the batch's tokens (nats) and the gradient's L2 norm before clipping."""

    loss_nats: float
    grad_norm: float


def train_step(
    loss_function: LossFunction,
    model: GPT,
    optimizers: list[torch.optim.Optimizer],
    batch: Tensor,
    train: Train,
    lr_scale: float,
    used: Used,
) -> StepResult:
    """One optimizer step on `batch` [B, T+1], whatever the micro-batch: the loss is the token mean.

    Raises `FloatingPointError` before the optimizer is touched if loss or gradient is not finite.
    """
    n_tokens = batch.size(0) * (batch.size(1) - 1)
    total = torch.zeros((), dtype=torch.float64)
    for micro in batch.split(train.micro_batch):
        with used.autocast():
            loss = loss_function(micro[:, :-1], micro[:, 1:], "sum") / n_tokens
        loss.backward()
        total += loss.detach().double().cpu()
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), train.grad_clip)
    result = StepResult(total.item(), grad_norm.item())
    if np.isfinite([result.loss_nats, result.grad_norm]).all():
        set_lr(optimizers, lr_scale)
        for optimizer in optimizers:
            optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    if not np.isfinite([result.loss_nats, result.grad_norm]).all():
        raise FloatingPointError(f"loss {result.loss_nats}, gradient norm {result.grad_norm}")
    return result


def evaluate(loss_function: LossFunction, windows: Tensor, micro_batch: int, used: Used) -> float:
    """Mean loss in nats per token over `windows` [n, T+1]. Moves no RNG, touches no gradient.

    Autograd stays on, and its graph unused, so that training's compiled graph serves here too.
    """
    total = torch.zeros((), dtype=torch.float64)
    for micro in windows.split(micro_batch):
        with used.autocast():
            total += loss_function(micro[:, :-1], micro[:, 1:], "sum").detach().double().cpu()
    return (total / (windows.size(0) * (windows.size(1) - 1))).item()


def compiled(model: GPT, used: Used) -> LossFunction:
    """The model's loss, compiled where that is used."""
    return torch.compile(model.loss, dynamic=False) if used.compile_used else model.loss


# ---------------------------------------------------------------- the state of a run


@dataclass
class State:
    """With the tensors of `checkpoint.snapshot`, all that a run needs to go on as if never stopped."""

    branch: int = 0
    step: int = 0
    log_bytes: int = 0  # the log is cut back to here on resume
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    monitor: dict[str, Any] = field(default_factory=dict)
    elapsed_s: float = 0.0
    training_s: float = 0.0
    evaluation_s: float = 0.0
    compile_s: float = 0.0
    timed_tokens: int = 0
    resumes: int = 0
    saves: int = 0
    finished: bool = False

    def evaluated(self) -> bool:
        """Whether this step of this branch has its validation loss."""
        return any(e["branch"] == self.branch and e["step"] == self.step for e in self.evaluations)


@dataclass
class StopRequest:
    """SIGTERM and Ctrl-C ask the loop to save and leave; `status` is the shell's 128 + signal."""

    status: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.status = 128 + number


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
    is reached (`BUDGET_EXHAUSTED`). Raises `UserError` for bad input and for a loss that is not finite.
    """
    # Data: which tokens a step reads depends on nothing but (data, seed, step).
    tokens = Tokens(tokens_dir)
    tokens.verify()
    loader = TrainLoader(tokens, spec.train.seq_len, spec.train.batch_sequences, spec.seed)
    validation = validation_windows(tokens, spec.train.seq_len, spec.train.val_tokens)

    # Device, model, optimizers.
    used = setup(spec.device, spec.seed)
    model = GPT(spec.shape, spec.recipe, tokens.n_vocab, spec.train.seq_len)
    model.initialise(spec.seed).to(used.device)
    optimizers = build_optimizers(model, spec.train, spec.recipe)
    loss_function = compiled(model, used)
    val_windows = torch.from_numpy(validation).to(used.device)

    machine = peak(used)
    flops_per_token = spec.flops_per_token(tokens.n_vocab)
    fingerprint = identity.fingerprint(spec, used, tokens.data_sha256)
    scratch, outputs = Scratch(spec.stage, fingerprint), Path(".scratch") / f"{spec.output}.lock"
    with exclusive(outputs, "writes the same outputs") as waited_long, scratch.lock() as waited:
        started, started_utc = time.monotonic(), datetime.now(UTC)

        # State: fresh, resumed, or just finished by the process that we waited for.
        found = scratch.latest()
        if found is not None and found[1]["finished"] and scratch.delivered and not (waited or waited_long):
            scratch.clear()  # a forced re-run must train, not copy
            found = None
        state = State()
        if found is not None:
            tensors, saved = found
            state = State(**saved)
            restore(tensors, model, optimizers)
            if not state.finished:
                state.resumes += 1
                print(f"{spec.run_id}: resuming at step {state.step} of branch {state.branch + 1}")
        monitor = SpikeMonitor()
        if state.monitor:
            monitor.load_state_dict(state.monitor)
        log_path, spent_before_s = scratch.folder / "log.csv", state.elapsed_s
        log_stream = log_path.open("a", newline="", encoding="utf-8")
        log_stream.truncate(state.log_bytes)
        log_stream.seek(0, os.SEEK_END)
        log = csv.writer(log_stream, lineterminator="\n")

        # Money: what the whole project spent counts, and is written down whatever ends this run.
        ledger, price = Ledger(paths.ledger()), spec.money.price_usd_per_hour
        guard, charged_s = BudgetGuard(price, spec.money.cap_usd, ledger.total_usd()), 0.0

        def charge() -> None:
            nonlocal guard, charged_s
            if price > 0:
                elapsed_s = time.monotonic() - started
                ledger.charge(spec.run_id, elapsed_s - charged_s, price)
                guard = replace(guard, already_spent_usd=ledger.total_usd())
                charged_s = elapsed_s

        def save(name: str | None = None) -> None:
            log_stream.flush()
            os.fsync(log_stream.fileno())  # the checkpoint says how long the log is
            charge()
            state.log_bytes, state.monitor = log_stream.tell(), monitor.state_dict()
            state.elapsed_s = spent_before_s + time.monotonic() - started
            state.saves += 1
            scratch.save(name or f"step-{state.saves:06d}", snapshot(model, optimizers), asdict(state))

        stop = StopRequest()
        branches = spec.schedule.branches
        work_done = sum(b.end - b.start for b in branches[: state.branch])
        work_done += state.step - branches[state.branch].start
        first_step, pending = True, []
        flops_left = (spec.schedule.work_steps - work_done) * spec.train.batch_tokens * flops_per_token
        guard.refuse_above_cap(flops_left / (machine.flops_per_s * spec.money.assumed_mfu))

        with contextlib.ExitStack() as leaving:  # whatever ends the run: the end, an error, a signal
            leaving.enter_context(log_stream)
            leaving.callback(charge)
            for number in (signal.SIGTERM, signal.SIGINT):
                leaving.callback(signal.signal, number, signal.signal(number, stop))
            mirror = leaving.enter_context(
                Mirror(mlflow_uri, experiment, spec.run_id, record.mlflow_params(spec), mlflow_required)
            )
            report = leaving.enter_context(ProgressReport(spec.run_id, spec.schedule.work_steps, work_done))
            while not state.finished:
                branch, last = branches[state.branch], state.branch == len(branches) - 1
                ended = state.step == branch.end

                # Evaluate on the fixed validation range; saved first, so that nothing can be lost here.
                due = last and state.step > 0 and state.step % spec.eval_every == 0
                if (ended or due) and not state.evaluated():
                    save()
                    clock = time.monotonic()
                    val_loss = evaluate(loss_function, val_windows, spec.train.micro_batch, used)
                    state.evaluation_s += time.monotonic() - clock
                    state.evaluations.append(
                        {"branch": state.branch, "step": state.step, "val_loss_nats": val_loss}
                    )
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
                if guard.exhausted(time.monotonic() - started - charged_s):
                    save()
                    print(
                        f"{spec.run_id}: the cap of {spec.money.cap_usd} $ is reached at step {state.step}; "
                        "the checkpoint is kept, raise money.cap_usd and run the same command to go on",
                        file=sys.stderr,
                    )
                    sys.exit(BUDGET_EXHAUSTED)

                clock = time.monotonic()
                batch = torch.from_numpy(loader.batch(state.step)).to(used.device)
                lr_scale = branch.lr_scale(state.step, spec.schedule.warmup_steps)
                try:
                    result = train_step(loss_function, model, optimizers, batch, spec.train, lr_scale, used)
                except FloatingPointError as error:
                    raise UserError(
                        f"{spec.run_id}: not finite at step {state.step + 1} ({error}); the optimizer was "
                        "not touched and the last checkpoint is kept; lower the lr or look at the data"
                    ) from error
                state.step += 1
                took_s = time.monotonic() - clock
                if first_step:  # compilation, or loading what an earlier stage compiled
                    state.compile_s, first_step = state.compile_s + took_s, False
                else:
                    state.training_s += took_s
                    state.timed_tokens += spec.train.batch_tokens

                alarm = monitor.observe(state.step, result.loss_nats, result.grad_norm)
                if alarm is not None:
                    state.alarms.append({"branch": state.branch, **alarm.as_dict()})
                log.writerow([state.branch, state.step, lr_scale, result.loss_nats, result.grad_norm])
                if last or state.step <= branch.fork:
                    pending.append(("train_loss", result.loss_nats, state.step))
                work_done += 1
                report.step(work_done, f"loss {result.loss_nats:.3f}")

        # What the run hands over.
        tokens_per_s = state.timed_tokens / state.training_s if state.training_s else None
        finished = record.Finished(
            spec=spec,
            used=used,
            model=model,
            tokens=tokens,
            val_bytes=int(tokens.token_bytes[validation[:, 1:]].sum()),
            log=record.read_log(log_path),
            evaluations=state.evaluations,
            alarms=state.alarms,
            flops_per_token=flops_per_token,
            fingerprint=fingerprint,
            state_sha256=state_hash(snapshot(model, optimizers)),
            measured={
                "stage": spec.stage,
                "run_id": spec.run_id,
                "started_utc": started_utc.isoformat(timespec="seconds"),
                "elapsed_s": round(state.elapsed_s, 3),
                "training_s": round(state.training_s, 3),
                "evaluation_s": round(state.evaluation_s, 3),
                "compile_s": round(state.compile_s, 3),
                "tokens_per_s": tokens_per_s,
                **asdict(utilisation(machine, tokens_per_s, flops_per_token)),
                "resumes": state.resumes,
                "peak_memory_bytes": peak_memory_bytes(used),
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
