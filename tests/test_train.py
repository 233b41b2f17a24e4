"""The trainer: exact after any kill, whatever the micro-batch, and honest about what it did."""

import dataclasses
import functools
import os
import shutil
import signal
import threading
import time
from unittest import mock

import numpy as np
import pytest
import torch

from tests.conftest import DEVICE, RECIPE, SHAPE, TRAIN
from x1_pretrain import paths, signals, step
from x1_pretrain import train as trainer
from x1_pretrain.checkpoint import snapshot
from x1_pretrain.corpus.loader import Tokens, TrainLoader, validation_windows
from x1_pretrain.determinism import setup
from x1_pretrain.errors import UserError
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers
from x1_pretrain.schedule import schedule_of
from x1_pretrain.spikes import guard


class KilledError(Exception):
    """Stands for kill -9: nothing of the trainer's own runs after it."""


@pytest.fixture(autouse=True)
def scratch_here(tmp_path, monkeypatch):
    monkeypatch.setenv("X1_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(synthetic_tokens):
    def start(spec):
        return trainer.train(spec, synthetic_tokens, "off", "test", lambda finished: None)

    return start


def kill_at(monkeypatch, call, name="train_step"):
    """Make the `call`-th call of a function of the trainer die before it begins."""
    original, calls = getattr(trainer, name), []

    def dying(*arguments, **named):
        calls.append(1)
        if len(calls) == call:
            raise KilledError
        return original(*arguments, **named)

    monkeypatch.setattr(trainer, name, dying)


def outcome(finished):
    losses = [(e["branch"], e["step"], e["val_loss_nats"]) for e in finished.evaluations]
    return finished.state_sha256, losses, finished.log, finished.alarms


@pytest.mark.parametrize("call", [2, 6, 10, 13, 14, 17, 25, 27])
def test_a_killed_run_ends_with_the_same_bits(run, small_spec, monkeypatch, call):
    expected = outcome(run(small_spec))
    with monkeypatch.context() as patch:
        kill_at(patch, call)
        with pytest.raises(KilledError):
            run(small_spec)
    finished = run(small_spec)
    assert outcome(finished) == expected


@pytest.mark.parametrize("calls", [(6, 1, 1), (6, 2, 9), (11, 2, 4)])
def test_killed_again_right_after_resuming(run, small_spec, monkeypatch, calls):
    """The second kill comes before the resumed run has saved a state of its own making."""
    expected = outcome(run(small_spec))
    for call in calls:
        with monkeypatch.context() as patch:
            kill_at(patch, call)
            with pytest.raises(KilledError):
                run(small_spec)
    assert outcome(run(small_spec)) == expected


def test_a_log_longer_than_the_checkpoint_knows_is_cut(run, small_spec, monkeypatch):
    """As after a kill between the log's write and the checkpoint's: the state says where it ends."""
    expected = outcome(run(small_spec))
    for call in (7, 2):
        with monkeypatch.context() as patch:
            kill_at(patch, call)
            with pytest.raises(KilledError):
                run(small_spec)
        (folder,) = run_folders()
        with (folder / "log.csv").open("a") as log:
            log.write("0,99,1.0,9.0,9.0\n" * 50)
    assert outcome(run(small_spec)) == expected


def test_a_run_whose_delivery_failed_is_delivered_without_training_again(
    synthetic_tokens, small_spec, monkeypatch
):
    def full_disk(finished):
        raise UserError("no room")

    with pytest.raises(UserError, match="no room"):
        trainer.train(small_spec, synthetic_tokens, "off", "test", full_disk)
    delivered = []
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", lambda *a: pytest.fail("trained again"))
        trainer.train(small_spec, synthetic_tokens, "off", "test", delivered.append)
    assert delivered[0].val_loss_nats > 0


def test_another_run_of_the_same_output_waits(small_spec, synthetic_tokens, change, capfd):
    """An orphan of another configuration must not write over a later run's outputs."""
    started, order = threading.Event(), []

    def slow(finished):
        started.set()
        time.sleep(0.5)
        order.append("first")

    first = threading.Thread(
        target=trainer.train, args=(change(small_spec, seed=1), synthetic_tokens, "off", "test", slow)
    )
    with mock.patch.object(signals.signal, "signal"):  # handlers belong to the main thread
        first.start()
        assert started.wait(60)
        trainer.train(small_spec, synthetic_tokens, "off", "test", lambda finished: order.append("second"))
        first.join()
    assert order == ["first", "second"]
    assert "writes the same outputs; waiting" in capfd.readouterr().err


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_kill_during_an_evaluation_loses_nothing(run, small_spec, monkeypatch, call):
    expected = outcome(run(small_spec))
    with monkeypatch.context() as patch:
        kill_at(patch, call, "evaluate")
        with pytest.raises(KilledError):
            run(small_spec)
    (folder,) = run_folders()
    assert list(folder.glob("step-*")), "a checkpoint is on the disk before any evaluation"
    assert outcome(run(small_spec)) == expected


def run_folders():
    """The scratch folders of the runs so far."""
    return list((paths.scratch_root() / "test").iterdir())


def test_a_forced_run_trains_again_from_the_start(run, small_spec, monkeypatch):
    first = run(small_spec)
    steps = []
    original = trainer.train_step
    monkeypatch.setattr(trainer, "train_step", lambda *a: steps.append(1) or original(*a))
    again = run(small_spec)
    assert len(steps) == small_spec.schedule.work_steps
    assert outcome(again) == outcome(first)
    assert again.measured["resumes"] == 0


def test_a_branch_is_the_shorter_run_and_the_trunk_is_not_disturbed(run, small_spec, change):
    branched = run(small_spec)
    half = run(change(small_spec, schedule=schedule_of(TRAIN, RECIPE, 12)))
    whole = run(change(small_spec, schedule=schedule_of(TRAIN, RECIPE, 24)))
    points = {(e["branch"], e["step"]): e["val_loss_nats"] for e in branched.evaluations}
    assert points[0, 12] == half.val_loss_nats
    assert points[1, 24] == whole.val_loss_nats
    assert branched.state_sha256 == whole.state_sha256


def test_steps_are_exactly_as_many_as_asked(run, small_spec, change):
    finished = run(change(small_spec, schedule=schedule_of(TRAIN, RECIPE, 17)))
    assert [row.step for row in finished.log] == list(range(1, 18))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_exits_with_a_status_that_says_so(run, small_spec, monkeypatch, capsys, number):
    expected = outcome(run(small_spec))
    original, calls = trainer.train_step, []

    def signalled(*arguments):
        calls.append(1)
        if len(calls) == 7:
            os.kill(os.getpid(), number)
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", signalled)
        with pytest.raises(SystemExit) as stop:
            run(small_spec)
    assert stop.value.code == 128 + number
    assert "saved at step 7" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", lambda *a: calls.append(1) or original(*a))
        finished = run(small_spec)
    assert len(calls) == small_spec.schedule.work_steps, "no step was done twice"
    assert outcome(finished) == expected and finished.measured["resumes"] == 1


def test_a_gradient_that_is_not_finite_stops_before_the_optimizer(synthetic_tokens):
    used = setup(DEVICE, 0)
    model = GPT(SHAPE, RECIPE, 257, TRAIN.seq_len).initialise(0)
    optimizers = build_optimizers(model, TRAIN, RECIPE)
    batch = torch.from_numpy(TrainLoader(Tokens(synthetic_tokens), 32, 8, 0).batch(0))
    trainer.train_step(model.loss, model, optimizers, batch, TRAIN, 1.0, used)
    before = snapshot(model, optimizers)

    def broken(*arguments):
        return model.loss(*arguments) * float("nan")

    assert not trainer.train_step(broken, model, optimizers, batch, TRAIN, 1.0, used).finite
    after = snapshot(model, optimizers)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_that_diverges_says_where_and_keeps_its_checkpoint(run, small_spec, change):
    with pytest.raises(UserError, match=r"not finite at step \d+ .*last checkpoint is kept"):
        run(change(change(small_spec, "recipe", optimizer="adamw", qk_norm=False), "train", adamw_lr=1e38))


def spoil(monkeypatch, bad):
    """The loss of the batch that starts with the given tokens is NaN; returns what was read, in order."""
    original, read = step.backward, []

    def backward(loss_function, batch, micro_batch, used):
        read.append(batch.clone())
        loss = original(loss_function, batch, micro_batch, used)
        return float("nan") if any(torch.equal(batch, b) for b in bad) else loss

    monkeypatch.setattr(step, "backward", backward)
    return read


def batches(tokens_dir, *steps):
    loader = TrainLoader(Tokens(tokens_dir), TRAIN.seq_len, TRAIN.batch_sequences, 0)
    return [torch.from_numpy(loader.batch(step)) for step in steps]


@pytest.fixture
def plain_spec(small_spec, change):
    """24 steps, no branches."""
    return change(small_spec, schedule=schedule_of(TRAIN, RECIPE, 24))


def test_skip_leaves_the_update_out_and_counts_it(run, plain_spec, change, monkeypatch, synthetic_tokens):
    spoil(monkeypatch, batches(synthetic_tokens, 9))
    finished = run(change(plain_spec, "train", non_finite="skip"))
    assert finished.skipped_steps == 1 and [a["reason"] for a in finished.alarms] == ["nonfinite"]
    assert len(finished.log) == 24 and np.isnan(finished.log[9].loss_nats)
    assert all(np.isfinite(row.loss_nats) for row in finished.log if row.step != 10)
    assert np.isfinite(finished.val_loss_nats)


@pytest.mark.parametrize("bad", [[0], [9], [9, 10, 13]])
def test_rewind_goes_back_and_leaves_the_batch_out(
    run, plain_spec, change, monkeypatch, synthetic_tokens, bad
):
    """As if the data had never had those batches: bit for bit the run that reads around them."""
    with monkeypatch.context() as patch:
        read = spoil(patch, batches(synthetic_tokens, *bad))
        finished = run(change(plain_spec, "train", non_finite="rewind"))
    kept = [b for b in batches(synthetic_tokens, *range(24 + len(bad)))]
    kept = [b for step, b in enumerate(kept) if step not in bad]
    assert all(torch.equal(a, b) for a, b in zip(read[-len(kept) + bad[-1] :], kept[bad[-1] :], strict=True))
    assert [row.step for row in finished.log] == list(range(1, 25))
    assert finished.skipped_data == [[step * 8 - 8 * i, 8] for i, step in enumerate(bad)] or bad != [9]
    assert finished.skipped_steps == 0 and np.isfinite([row.loss_nats for row in finished.log]).all()


def test_a_rewind_survives_a_kill(run, plain_spec, change, monkeypatch, synthetic_tokens):
    spec = change(plain_spec, "train", non_finite="rewind")
    spoil(monkeypatch, batches(synthetic_tokens, 9, 14))
    expected = outcome(run(spec))
    for call in (11, 3, 9):
        with monkeypatch.context() as patch:
            kill_at(patch, call)
            with pytest.raises(KilledError):
                run(spec)
    assert outcome(run(spec)) == expected


def test_a_cause_that_is_not_one_batch_stops_the_run(run, plain_spec, change, monkeypatch, synthetic_tokens):
    spoil(monkeypatch, batches(synthetic_tokens, *range(5, 24)))
    with pytest.raises(UserError, match=r"not finite at step 6 .*last checkpoint is kept"):
        run(change(plain_spec, "train", non_finite="rewind"))


def spike_at(monkeypatch, first: int, end: int):
    """Sequences [first, end) of the order become noise that unlearns the text, wherever they are read."""
    clean = TrainLoader.sequences

    def sequences(self, begin, count):
        batch = clean(self, begin, count)
        for row, number in enumerate(range(begin, begin + count)):
            if first <= number < end:
                batch[row] = np.random.default_rng(number).integers(128, 256, size=batch.shape[1])
        return batch

    monkeypatch.setattr(TrainLoader, "sequences", sequences)


@pytest.fixture
def long_spec(small_spec, change, monkeypatch):
    """130 steps, so that the monitor, which needs 64, and a probe come before a spike."""
    monkeypatch.setattr(guard, "SpikeMonitor", functools.partial(guard.SpikeMonitor, window=64))
    spec = change(small_spec, schedule=schedule_of(TRAIN, RECIPE, 130), eval_every=130)
    return change(spec, "train", checkpoint_every=20, adamw_lr=0.02, embedding_lr=0.02)


def test_a_confirmed_spike_is_counted_with_the_documents_it_read(run, long_spec, monkeypatch):
    spike_at(monkeypatch, 110 * 8, 118 * 8)
    finished = run(long_spec)
    (spike,) = finished.spikes
    assert spike["first_step"] == 111 and spike["action"] == "observe"
    alarm = next(a for a in finished.alarms if a["step"] == 111)
    assert alarm["first_sequence"] == 110 * 8 and len(alarm["sequence_losses_nats"]) == 8
    assert all(name.startswith("toy/") for names in alarm["documents"] for name in names)
    assert [row.first_sequence for row in finished.log] == [8 * step for step in range(130)]
    assert [vital["step"] for vital in finished.vitals] == [50, 100]


def test_a_rewind_after_a_spike_goes_on_as_if_its_data_had_never_been(run, long_spec, change, monkeypatch):
    spike_at(monkeypatch, 110 * 8, 118 * 8)
    finished = run(change(long_spec, "train", on_spike="rewind"))
    (spike,) = finished.spikes
    assert spike["action"] == "rewind" and spike["rewound_to_step"] < 111
    ((first, count),) = finished.skipped_data
    assert first == 109 * 8 and first + count >= 119 * 8
    assert [row.step for row in finished.log] == list(range(1, 131))
    assert not {row.first_sequence for row in finished.log} & set(range(first, first + count))
    assert not any(alarm["step"] > 120 for alarm in finished.alarms)
    assert any(alarm["step"] == 111 for alarm in finished.alarms)


def test_skip_leaves_out_what_is_flagged_while_a_confirmed_spike_lasts(run, long_spec, change, monkeypatch):
    spike_at(monkeypatch, 100 * 8, 125 * 8)
    finished = run(change(long_spec, "train", on_spike="skip"))
    left_out = [row.step for row in finished.log if not row.updated]
    assert finished.skipped_steps == len(left_out) > 0
    assert min(left_out) > finished.spikes[0]["last_step"]


def test_too_many_spikes_stop_the_run_with_its_checkpoint(run, long_spec, change, monkeypatch):
    spike_at(monkeypatch, 100 * 8, 10**6)
    with pytest.raises(UserError, match=r"a spike at steps .* after 3 rewinds; the last checkpoint is kept"):
        run(change(long_spec, "train", on_spike="rewind"))


RECIPES = [
    {"schedule": "cosine"},
    {"batch_ramp": True},
    {"window_warmup": True},
    {"value_residual": True, "value_embeddings": True, "embedding_shortcut": True, "logit_softcap": 15.0},
    {"optimizer": "adamw", "z_loss": 1e-4, "mup": True, "activation": "swiglu", "position": "learned"},
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_exact_after_kills(run, small_spec, change, monkeypatch, recipe):
    spec = change(change(small_spec, "recipe", **recipe), "train", noise_batches=2, micro_batch=2)
    spec = change(spec, schedule=schedule_of(spec.train, spec.recipe, 24, (0.5, 1.0)))
    expected = run(spec)
    assert expected.val_loss_nats < expected.log[0].loss_nats
    for call in (5, 9, 3):
        with monkeypatch.context() as patch:
            kill_at(patch, call)
            with pytest.raises(KilledError):
                run(spec)
    assert outcome(run(spec)) == outcome(expected)


def test_the_noise_scale_is_measured_and_moves_nothing(run, small_spec, change):
    plain, measuring = run(small_spec), run(change(small_spec, "train", noise_batches=3))
    assert measuring.state_sha256 == plain.state_sha256 and measuring.log == plain.log
    assert all(("noise" in e) == (e["branch"] == 1) for e in measuring.evaluations)


def test_clipping_can_be_off(run, plain_spec, change):
    clipped, free = (
        run(change(plain_spec, "train", grad_clip=1e-3)),
        run(change(plain_spec, "train", grad_clip=None)),
    )
    assert free.log[0] == clipped.log[0] and free.log[1].loss_nats != clipped.log[1].loss_nats


def test_out_of_memory_keeps_the_checkpoint_and_proposes_a_micro_batch(run, small_spec, monkeypatch):
    expected = outcome(run(small_spec))
    original, calls = trainer.train_step, []

    def full(*arguments):
        calls.append(1)
        if len(calls) == 6:
            torch.empty(2**50)
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", full)
        with pytest.raises(
            UserError, match=r"out of memory; the last checkpoint is kept, set train.micro_batch to 4"
        ):
            run(small_spec)
    assert outcome(run(small_spec)) == expected


def test_a_checkpoint_of_another_run_is_refused(run, small_spec, change, monkeypatch, capsys):
    """Copied by hand into this run's scratch: named, and not resumed from."""
    for spec in (change(small_spec, seed=1), small_spec):
        with monkeypatch.context() as patch:
            kill_at(patch, 10)
            with pytest.raises(KilledError):
                run(spec)
    other, mine = sorted(run_folders(), key=lambda folder: folder.stat().st_ctime_ns)
    for folder in mine.glob("step-*"):
        shutil.rmtree(folder)
    shutil.copytree(next(other.glob("step-*")), mine / "step-000009")
    with monkeypatch.context() as patch:
        kill_at(patch, 1)
        with pytest.raises(KilledError):
            run(small_spec)
    assert "a checkpoint of another run (fingerprint" in capsys.readouterr().err


def test_loss_and_gradient_do_not_depend_on_the_micro_batch(synthetic_tokens):
    used = setup(DEVICE, 0)
    batch = torch.from_numpy(TrainLoader(Tokens(synthetic_tokens), 32, 8, 0).batch(0))
    results, weights = [], []
    for micro_batch in (1, 2, 8):
        train = dataclasses.replace(TRAIN, micro_batch=micro_batch)
        model = GPT(SHAPE, dataclasses.replace(RECIPE, zero_init=False), 257, 32).initialise(0)
        optimizers = build_optimizers(model, train, RECIPE)
        results.append(trainer.train_step(model.loss, model, optimizers, batch, train, 1.0, used))
        weights.append(model.blocks[0].mlp.up.weight.detach())
    for result, weight in zip(results[1:], weights[1:], strict=True):
        assert result.loss_nats == pytest.approx(results[0].loss_nats, abs=1e-6)
        assert result.grad_norm == pytest.approx(results[0].grad_norm, rel=1e-5)
        torch.testing.assert_close(weight, weights[0], atol=1e-4, rtol=0)


def test_validation_depends_on_neither_micro_batch_nor_rng(synthetic_tokens):
    used = setup(DEVICE, 0)
    model = GPT(SHAPE, dataclasses.replace(RECIPE, zero_init=False), 257, 32).initialise(0)
    windows = torch.from_numpy(validation_windows(Tokens(synthetic_tokens), 32, 512))
    rng, numpy_rng = torch.get_rng_state(), np.random.get_state()[1].copy()
    losses = [trainer.evaluate(model.loss, windows, m, used) for m in (1, 4, 5, 16)]
    assert max(losses) - min(losses) < 1e-6
    assert torch.equal(rng, torch.get_rng_state()) and (numpy_rng == np.random.get_state()[1]).all()
    assert all(p.grad is None for p in model.parameters())


def test_training_learns(run, small_spec):
    finished = run(small_spec)
    assert finished.val_loss_nats < finished.log[0].loss_nats - 0.5


@pytest.mark.slow
def test_compiled_bf16_is_bit_stable_and_close_to_eager(run, small_spec, change):
    compiled = change(small_spec, "device", precision="bf16", compile=True)
    first, again = run(compiled), run(compiled)
    if not first.used.compile_used:
        pytest.skip("no C++ compiler here")
    assert outcome(first) == outcome(again)
    assert first.val_loss_nats == pytest.approx(run(small_spec).val_loss_nats, abs=0.05)
