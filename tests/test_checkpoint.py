"""Checkpoints: exact, atomic, checked on load; scratch: one writer, damaged states named and skipped."""

import dataclasses
import multiprocessing
import os
import resource
import time
from contextlib import contextmanager

import pytest
import torch

from tests.conftest import RECIPE, SHAPE, TRAIN
from x1_pretrain import checkpoint
from x1_pretrain.checkpoint import Scratch, load_model, publish, restore, snapshot, state_hash
from x1_pretrain.config import as_dict
from x1_pretrain.deliverables.files import read_json, write_json
from x1_pretrain.errors import UserError
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers
from x1_pretrain.paths import scratch_root


@pytest.fixture(autouse=True)
def scratch_here(tmp_path, monkeypatch):
    monkeypatch.setenv("X1_SCRATCH", str(tmp_path / "scratch"))


def card(**changes):
    sections = {"shape": as_dict(SHAPE), "recipe": as_dict(RECIPE)}
    return sections | {"n_vocab": 40, "seq_len": 8, "base_width": 16, "tokenizer": "t"} | changes


def trained(steps=2):
    model = GPT(SHAPE, RECIPE, 40, 8).initialise(0)
    optimizers = build_optimizers(model, TRAIN, RECIPE)
    for step in range(steps):
        step_once(model, optimizers, step)
    return model, optimizers


def step_once(model, optimizers, seed):
    x = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(seed))
    model.loss(x[:, :-1], x[:, 1:]).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def test_restoring_goes_on_bit_for_bit():
    model, optimizers = trained(2)
    saved = snapshot(model, optimizers)
    step_once(model, optimizers, 7)
    expected = state_hash(snapshot(model, optimizers))
    other, other_optimizers = trained(0)
    restore(saved, other, other_optimizers)
    step_once(other, other_optimizers, 7)
    assert state_hash(snapshot(other, other_optimizers)) == expected


def test_a_snapshot_is_a_copy_of_live_state():
    model, optimizers = trained(1)
    first = snapshot(model, optimizers)
    before = state_hash(first)
    step_once(model, optimizers, 3)
    assert state_hash(first) == before != state_hash(snapshot(model, optimizers))


def test_round_trip_through_the_disk():
    model, optimizers = trained()
    scratch = Scratch("stage", "f" * 64)
    scratch.save("step-0-00000002", snapshot(model, optimizers), {"step": 2})
    tensors, state = scratch.latest()
    assert state == {"step": 2}
    assert state_hash(tensors) == state_hash(snapshot(model, optimizers))


@pytest.mark.parametrize("damage", ["truncate", "flip", "no tensors", "no state"])
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(damage, capsys):
    model, optimizers = trained()
    scratch = Scratch("stage", "f" * 64)
    for step in (2, 4):
        scratch.save(f"step-0-{step:08d}", snapshot(model, optimizers), {"step": step})
    newest = scratch.folder / "step-0-00000004"
    tensors = newest / "tensors.safetensors"
    if damage == "truncate":
        os.truncate(tensors, tensors.stat().st_size - 2)
    elif damage == "flip":
        content = bytearray(tensors.read_bytes())
        content[-1] ^= 1
        tensors.write_bytes(content)
    elif damage == "no tensors":
        tensors.unlink()
    else:
        (newest / "state.json").unlink()
    _, state = scratch.latest()
    assert state == {"step": 2}
    assert "step-0-00000004" in capsys.readouterr().err


def test_a_write_that_stops_half_way_leaves_the_earlier_checkpoint(monkeypatch):
    model, optimizers = trained()
    scratch = Scratch("stage", "f" * 64)
    scratch.save("step-0-00000002", snapshot(model, optimizers), {"step": 2})

    def full_disk(*arguments, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full_disk)
    with pytest.raises(UserError, match=r"could not be written \(No space left on device\).*make room"):
        scratch.save("step-0-00000004", snapshot(model, optimizers), {"step": 4})
    assert scratch.latest()[1] == {"step": 2}
    assert not list(scratch.folder.glob(".*tmp"))


@contextmanager
def tiny_files():
    """The system refuses to write more than 512 bytes into one file, as a full disk would.

    Held for single calls only: pytest itself writes longer files when its output is one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_safetensors_says_of_a_full_disk_is_one_sentence(tmp_path):
    model, optimizers = trained()
    scratch = Scratch("stage", "f" * 64)
    message = r"the checkpoint could not be written .*make room"
    with pytest.raises(UserError, match=message), tiny_files():
        scratch.save("step-000001", snapshot(model, optimizers), {"step": 2})
    assert not list(scratch.folder.glob("*step*"))
    with pytest.raises(UserError, match=r"model\.safetensors: could not be written"), tiny_files():
        publish(tmp_path / "out", model, {})


def test_after_all_checkpoints_were_damaged_new_ones_are_kept():
    model, optimizers = trained()
    scratch = Scratch("stage", "f" * 64)
    for save in (41, 42):
        scratch.save(f"step-{save:06d}", snapshot(model, optimizers), {"step": save})
        (scratch.folder / f"step-{save:06d}/state.json").write_text("{}")
    assert scratch.latest() is None
    scratch.save("step-000001", snapshot(model, optimizers), {"step": 1})
    assert scratch.latest()[1] == {"step": 1}


@pytest.mark.parametrize("damage", ["shape", "truncate", "missing key"])
def test_a_published_checkpoint_that_is_not_one_is_named(tmp_path, damage):
    model, _ = trained()
    info = card()
    publish(tmp_path / "out", model, info)
    weights = tmp_path / "out/model.safetensors"
    if damage == "truncate":
        os.truncate(weights, weights.stat().st_size - 2)
    elif damage == "shape":
        write_json(tmp_path / "out/model.json", info | {"n_vocab": 41})
    else:
        del info["recipe"]
        write_json(tmp_path / "out/model.json", info)
    name = "model.json: missing key 'recipe'" if damage == "missing key" else "model.safetensors: not the"
    with pytest.raises(UserError, match=name) as error:
        load_model(tmp_path / "out")
    assert "\n" not in str(error.value)


def test_only_the_last_checkpoints_are_kept():
    model, optimizers = trained(0)
    scratch = Scratch("stage", "f" * 64)
    for step in range(5):
        scratch.save(f"step-0-{step:08d}", snapshot(model, optimizers), {"step": step})
    assert [folder.name[-1] for folder in sorted(scratch.folder.glob("step-*"))] == ["3", "4"]


def test_a_checkpoint_of_another_run_is_refused_and_not_used(capsys):
    """Both fingerprints begin with the same 16 digits, so that both runs have one folder."""
    model, optimizers = trained()
    mine, other = "f" * 64, "f" * 16 + "e" * 48
    Scratch("stage", other).save("step-000001", snapshot(model, optimizers), {"step": 1})
    scratch = Scratch("stage", mine)
    with pytest.raises(UserError, match=rf"step-000001: a checkpoint of another run \(fingerprint {other}, "):
        scratch.load("step-000001")
    assert scratch.latest() is None
    assert f"this run's is {mine}" in capsys.readouterr().err


def test_a_checkpoint_that_says_nothing_of_its_run_is_refused():
    model, optimizers = trained()
    scratch = Scratch("stage", "f" * 64)
    scratch.save("step-000001", snapshot(model, optimizers), {"step": 1})
    state = scratch.folder / "step-000001/state.json"
    write_json(state, {key: value for key, value in read_json(state).items() if key != "fingerprint"})
    with pytest.raises(UserError, match=r"fingerprint None"):
        scratch.load("step-000001")


def test_the_point_to_go_back_to_is_the_newest_whole_checkpoint():
    model, optimizers = trained()
    scratch = Scratch("stage", "f" * 64)
    with pytest.raises(UserError, match="no whole checkpoint is left to go back to"):
        scratch.rewind_point()
    for step in (2, 4):
        scratch.save(f"step-{step:06d}", snapshot(model, optimizers), {"step": step})
    assert scratch.rewind_point()[1] == {"step": 4}
    (scratch.folder / "step-000004/state.json").unlink()
    assert scratch.rewind_point()[1] == {"step": 2}


def test_weights_alone_are_refused_as_a_state():
    model, optimizers = trained()
    weights = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
    with pytest.raises(UserError, match="weights only"):
        restore(weights, model, optimizers)


def test_a_state_of_another_model_is_refused():
    model, optimizers = trained()
    saved = snapshot(model, optimizers)
    del saved["model.head.weight"]
    with pytest.raises(UserError, match=r"no parameter 'head.weight'"):
        restore(saved, model, optimizers)


def hold(folder, seconds, started):
    os.environ["X1_SCRATCH"] = folder
    with Scratch("stage", "f" * 64).lock():
        started.set()
        time.sleep(seconds)


def test_a_second_writer_waits_and_names_the_first(tmp_path, capfd):
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    first = context.Process(target=hold, args=(str(tmp_path / "scratch"), 1.0, started))
    first.start()
    assert started.wait(60)
    clock = time.monotonic()
    with Scratch("stage", "f" * 64).lock() as waited:
        assert waited and time.monotonic() - clock > 0.3
    first.join()
    assert f"process {first.pid} trains this run; waiting" in capfd.readouterr().err
    with Scratch("stage", "f" * 64).lock() as waited:
        assert not waited


def test_scratch_of_a_temporary_experiment_is_the_projects(tmp_path, monkeypatch):
    monkeypatch.delenv("X1_SCRATCH")
    for copy in ("tmpx1", "standalone/tmpx2"):
        folder = tmp_path / "project/.dvc/tmp/exps" / copy
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        assert scratch_root() == tmp_path / "project/.scratch"


def test_scratch_is_the_projects_own_where_the_cache_is_shared(tmp_path, monkeypatch):
    monkeypatch.delenv("X1_SCRATCH")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config.local").write_text("[cache]\n    dir = /of/another/project/.dvc/cache\n")
    monkeypatch.chdir(tmp_path)
    assert scratch_root() == tmp_path / ".scratch"


def test_a_published_checkpoint_loads_anywhere(tmp_path):
    model, _ = trained()
    publish(tmp_path / "out", model, card())
    loaded, read = load_model(tmp_path / "out")
    x = torch.arange(8)[None]
    assert torch.equal(loaded(x), model(x)) and read == card()


def test_a_published_checkpoint_is_scaled_by_its_base_width(tmp_path):
    """With muP and a tied head the width at which nothing changes is a factor on the logits."""
    recipe = dataclasses.replace(RECIPE, mup=True, tied_head=True)
    model = GPT(SHAPE, recipe, 40, 8, base_width=4).initialise(0)
    publish(tmp_path / "out", model, card(recipe=as_dict(recipe), base_width=4))
    loaded, _ = load_model(tmp_path / "out")
    x = torch.arange(8)[None]
    assert torch.equal(loaded(x), model(x)) and model(x).any()
    assert not torch.equal(GPT(SHAPE, recipe, 40, 8).initialise(0)(x), model(x))
