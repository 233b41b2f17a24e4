"""Defects that users of other trainers reported, each with the test that fails on it.

1   pytorch/torchtitan#809                 another loss after resuming: test_train.py, every kill test
5   Lightning-AI/litgpt#1712               after a resume every epoch is its tail: here
7   NVIDIA-NeMo/Megatron-Bridge#5257       the loader draws from the global RNG: corpus/test_loader.py,
                                           test_global_generators_are_not_moved; evaluation: test_train.py
8   NVIDIA-NeMo/RL PR#2519                 a position without the identity of its data: here
10  karpathy/nanoGPT#215, #167             NaN, and the run goes on: here
11  nanoGPT PR#227, torchtitan#916         stop, skip or rewind, counted: test_train.py, from "skip" on
12  facebookresearch/metaseq PR#521        a spike detector that a resume makes forget: here
14  torchtitan#341, OLMo-core PR#478       FLOPs that forget GQA or windows: economics/test_flops.py
17  karpathy/nanochat#541                  validation is whatever file comes last: here
21  karpathy/nanochat PR#286               validation tokens tied to the batch: here, and the loss itself
                                           in test_train.py, test_validation_depends_on_neither_...
22  nanochat PR#515, nanoGPT#206           the loss of the last micro-batch: test_train.py,
                                           test_loss_and_gradient_do_not_depend_on_the_micro_batch
"""

import dataclasses
import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import RECIPE, TRAIN
from x1_pretrain import paths
from x1_pretrain import train as trainer
from x1_pretrain.corpus.documents import write_lines
from x1_pretrain.corpus.loader import Tokens, TrainLoader, validation_windows
from x1_pretrain.corpus.shards import write_tokens
from x1_pretrain.corpus.tokenizer import GPT2Tokenizer
from x1_pretrain.errors import UserError
from x1_pretrain.schedule import schedule_of

ROOT = Path(__file__).parents[1]
STEPS, BATCH, T = 24, TRAIN.batch_sequences, TRAIN.seq_len


class KilledError(Exception):
    """Stands for kill -9: nothing of the trainer's own runs after it."""


@pytest.fixture(autouse=True)
def scratch_here(tmp_path, monkeypatch):
    monkeypatch.setenv("X1_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def plain_spec(small_spec, change):
    """24 steps of 8 sequences, a checkpoint every fourth step."""
    return change(small_spec, schedule=schedule_of(TRAIN, RECIPE, STEPS))


def shards(folder, seed=0, shard_tokens=10**8, documents=24):
    """A folder of about 1,900 train tokens, 58 windows, and 700 validation tokens; `seed` picks the text."""
    rng = random.Random(seed)
    lines = [
        json.dumps(
            {
                "id": f"toy/{n}",
                "text": "".join(rng.choices("abcdefgh ", k=110)),
                "split": "train" if n % 4 else "val",
            }
        )
        for n in range(documents)
    ]
    write_lines(folder / "documents/toy.jsonl.zst", lines)
    tokenizer = GPT2Tokenizer("gpt2:257", {bytes([byte]): byte for byte in range(256)})
    write_tokens(folder / "documents", tokenizer, folder / "tokens", shard_tokens)
    return folder / "tokens"


def run(spec, tokens_dir):
    return trainer.train(spec, tokens_dir, "off", "test", lambda finished: None)


def record_steps(monkeypatch, kill_at=None):
    """The sequences that each step of the trainer is given, as lists; step number `kill_at` dies."""
    original, read = trainer.train_step, []

    def recording(loss_function, model, optimizers, batch, *rest):
        if len(read) == kill_at:
            raise KilledError
        read.append(batch.tolist())
        return original(loss_function, model, optimizers, batch, *rest)

    monkeypatch.setattr(trainer, "train_step", recording)
    return read


def killed(spec, tokens_dir, monkeypatch, kill_at):
    """What the steps read that a resumed run need not read again: those before the last checkpoint."""
    with monkeypatch.context() as patch:
        read = record_steps(patch, kill_at)
        with pytest.raises(KilledError):
            run(spec, tokens_dir)
    return read[: kill_at // TRAIN.checkpoint_every * TRAIN.checkpoint_every]


def test_after_a_resume_within_an_epoch_every_epoch_is_complete(plain_spec, monkeypatch, tmp_path):
    """Lightning-AI/litgpt#1712: the resumed iterator began every later epoch where the first one stopped."""
    tokens_dir = shards(tmp_path)
    n = TrainLoader(Tokens(tokens_dir), T, BATCH, seed=0).n_windows
    resumed_at = 12
    assert n < resumed_at * BATCH < 2 * n and 3 * n < STEPS * BATCH, "resumed in epoch 1, ends in epoch 3"
    before = killed(plain_spec, tokens_dir, monkeypatch, resumed_at + 2)
    with monkeypatch.context() as patch:
        after = record_steps(patch)
        run(plain_spec, tokens_dir)
    assert (len(before), len(after)) == (resumed_at, STEPS - resumed_at)
    sequences = [sequence for step in before + after for sequence in step]
    tokens = Tokens(tokens_dir)
    every = sorted(tokens.read("train", i * T, T + 1).tolist() for i in range(n))
    for epoch in range(3):
        assert sorted(sequences[epoch * n : (epoch + 1) * n]) == every


def test_a_byte_changed_between_save_and_resume_is_refused_with_both_hashes(
    plain_spec, monkeypatch, tmp_path
):
    """NVIDIA-NeMo/RL PR#2519: a saved position was applied to whatever data was there."""
    tokens_dir = shards(tmp_path)
    killed(plain_spec, tokens_dir, monkeypatch, 10)
    path = tokens_dir / "train_000000.bin"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1  # the low byte of the last token, a letter
    path.write_bytes(content)
    with pytest.raises(
        UserError, match=r"train_000000\.bin: altered .*[0-9a-f]{64}.*index\.json [0-9a-f]{64}"
    ):
        run(plain_spec, tokens_dir)


def test_other_data_under_the_same_name_starts_at_its_beginning(plain_spec, monkeypatch, tmp_path):
    """NVIDIA-NeMo/RL PR#2519: with another dataset its first N samples were skipped in silence."""
    killed(plain_spec, shards(tmp_path), monkeypatch, 10)
    tokens_dir = shards(tmp_path, seed=1)
    with monkeypatch.context() as patch:
        read = record_steps(patch)
        finished = run(plain_spec, tokens_dir)
    loader = TrainLoader(Tokens(tokens_dir), T, BATCH, seed=0)
    assert read == [loader.batch(step).tolist() for step in range(STEPS)]
    assert finished.measured["resumes"] == 0


@pytest.fixture
def command(monkeypatch, synthetic_tokens, tmp_path):
    """The real command on 20 steps of the smoke profile's model A; returns the run's output folder."""
    shutil.copy(ROOT / paths.PARAMS, tmp_path)
    shutil.copytree(ROOT / paths.PROFILES, tmp_path / paths.PROFILES)
    smoke = tmp_path / paths.PROFILES / "smoke.yaml"
    one_thread = re.sub(r"threads: \d+", "threads: 1", smoke.read_text())
    smoke.write_text(re.sub(r"noise_batches: \d+", "noise_batches: 0", one_thread))

    def start():
        options = ["--model", "A", "--total-steps", "20", "--eval-every", "4", "--mlflow-uri", "off"]
        trainer.main(["--config", "smoke", "--tokens", str(synthetic_tokens), *options])
        return tmp_path / "runs/A-seed0"

    return start


def test_a_nan_gradient_ends_the_command_within_its_step(command, monkeypatch, tmp_path, capsys):
    """karpathy/nanoGPT#215, #167: nan printed for hours. Here the loss is finite and its gradient is not."""
    original, backwards = trainer.GPT, []

    def fifth_is_nan(gradient):
        backwards.append(1)
        return gradient * float("nan") if len(backwards) == 5 else gradient

    def spoiled(*arguments, **named):
        model = original(*arguments, **named)
        model.head.weight.register_hook(fifth_is_nan)
        return model

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "GPT", spoiled)
        with pytest.raises(SystemExit) as stop:
            command()
    assert stop.value.code == 2 and len(backwards) == 5
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert "A-seed0: not finite at step 5" in sentence and "non_finite" in sentence

    kept = sorted((tmp_path / "scratch/command").glob("*/step-*"))
    assert json.loads((kept[-1] / "state.json").read_text())["state"]["step"] == 4
    for folder in kept:
        tensors = load_file(folder / "tensors.safetensors")
        assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())
    assert json.loads((command() / "metrics.json").read_text())["steps"] == 20, "without the cause it goes on"


def test_a_resumed_run_raises_the_alarms_of_an_undisturbed_one(plain_spec, change, monkeypatch, tmp_path):
    """facebookresearch/metaseq PR#521: what a detector has seen belongs into the checkpoint."""
    tokens_dir, steps, spike = shards(tmp_path), 80, 76  # the monitor is silent for its first 64 steps
    spec = change(plain_spec, schedule=schedule_of(TRAIN, RECIPE, steps))
    bad = TrainLoader(Tokens(tokens_dir), T, BATCH, seed=0).batch(spike - 1).tolist()
    original = trainer.train_step

    def spiking(loss_function, model, optimizers, batch, *rest):
        result = original(loss_function, model, optimizers, batch, *rest)
        rise = 9.0 if batch.tolist() == bad else 0.0
        return dataclasses.replace(result, loss_nats=result.loss_nats + rise)

    monkeypatch.setattr(trainer, "train_step", spiking)
    expected = run(spec, tokens_dir).alarms
    assert [alarm["step"] for alarm in expected if alarm["reason"] == "loss"] == [spike]
    shutil.rmtree(tmp_path / "scratch")  # else the same run, finished, would be there
    killed(spec, tokens_dir, monkeypatch, spike - 5)
    resumed = run(spec, tokens_dir)
    assert resumed.alarms == expected and resumed.measured["resumes"] == 1


def test_validation_is_neither_the_last_file_nor_the_number_of_files(tmp_path):
    """karpathy/nanochat#541: the last shard on the disk was the validation set, whichever that was."""
    one, many = shards(tmp_path / "one"), shards(tmp_path / "many", shard_tokens=250)
    assert len(list(one.glob("train_*.bin"))) == 1 < len(list(many.glob("train_*.bin")))
    expected = validation_windows(Tokens(one), T, 512)
    assert np.array_equal(validation_windows(Tokens(many), T, 512), expected)

    for name in ("train_000009.bin", "val_000001.bin", "zzz.bin"):  # left over, or downloaded beside
        shutil.copy(one / "train_000000.bin", one / name)
    tokens = Tokens(one)
    tokens.verify()
    assert np.array_equal(validation_windows(tokens, T, 512), expected)
    assert TrainLoader(tokens, T, BATCH, 0).n_windows == TrainLoader(Tokens(many), T, BATCH, 0).n_windows


def test_a_single_document_is_an_empty_split_and_said(tmp_path):
    """karpathy/nanochat PR#620: one file, and the training set was empty."""
    with pytest.raises(UserError, match=r"no document is in the train split; add text, or change curation"):
        shards(tmp_path, documents=1)


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_validation_tokens_are_those_asked_for_whatever_the_micro_batch(
    plain_spec, change, monkeypatch, tmp_path, micro_batch
):
    """karpathy/nanochat PR#286: evaluation tokens were rounded to the batch, so losses did not compare."""
    tokens_dir, evaluated = shards(tmp_path), []
    original = trainer.evaluate

    def recording(loss_function, windows, *rest):
        evaluated.append(windows)
        return original(loss_function, windows, *rest)

    monkeypatch.setattr(trainer, "evaluate", recording)
    spec = change(plain_spec, "train", micro_batch=micro_batch, val_tokens=17 * T)  # 17: no multiple of any
    finished = run(change(spec, schedule=schedule_of(spec.train, RECIPE, 4)), tokens_dir)
    expected = torch.from_numpy(validation_windows(Tokens(tokens_dir), T, 17 * T))
    assert evaluated and all(torch.equal(windows, expected) for windows in evaluated)
    assert finished.val_tokens() == expected[:, 1:].numel() == 17 * T
