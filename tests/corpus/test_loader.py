"""The order of training: complete epochs, a pure function of the step, no global state."""

import json
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.corpus.loader import Tokens, TrainLoader, validation_windows
from x1_pretrain.errors import UserError

T = 16


@pytest.fixture(scope="module")
def tokens(tokens_dir):
    return Tokens(tokens_dir)


def sequences(loader, count):
    """The first `count` sequences of a run."""
    steps = -(-count // loader.batch_sequences)
    return np.concatenate([loader.batch(step) for step in range(steps)])[:count]


def test_another_batch_size_reads_the_same_sequences(tokens):
    loaders = [TrainLoader(tokens, T, batch, seed=3) for batch in (1, 4, 7, 64)]
    count = 2 * loaders[0].n_windows + 5
    first, *others = [sequences(loader, count) for loader in loaders]
    assert first.shape == (count, T + 1) and first.dtype == np.int64
    for other in others:
        assert (other == first).all()


def test_each_epoch_has_every_window_once_in_another_order(tokens):
    loader = TrainLoader(tokens, T, 1, seed=0)
    n = loader.n_windows
    every = [tokens.read("train", i * T, T + 1).tolist() for i in range(n)]
    read = sequences(loader, 3 * n).tolist()
    epochs = [read[e * n : (e + 1) * n] for e in range(3)]
    assert all(sorted(epoch) == sorted(every) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert (loader.epoch(0), loader.epoch(n - 1), loader.epoch(n)) == (0, 0, 1)


def test_a_loader_made_anew_within_an_epoch_completes_it_and_those_that_follow(tokens):
    """As on resuming: Lightning-AI/litgpt#1712 went through the rest of that epoch over and over."""
    n = TrainLoader(tokens, T, 8, seed=0).n_windows
    first, last = 3 * n // 16, 4 * n // 8  # steps; the first begins in the middle of epoch 1
    before = [TrainLoader(tokens, T, 8, seed=0).batch(step) for step in range(first)]
    resumed = TrainLoader(tokens, T, 8, seed=0)
    assert resumed.epoch(first) == 1 and (first * 8) % n > 0
    read = np.concatenate([*before, *(resumed.batch(step) for step in range(first, last + 1))]).tolist()
    epochs = [sorted(read[e * n : (e + 1) * n]) for e in range(4)]
    every = sorted(tokens.read("train", i * T, T + 1).tolist() for i in range(n))
    assert all(epoch == every for epoch in epochs)


@given(data=st.data())
def test_batches_of_any_sizes_read_on_where_the_last_one_ended(tokens, data):
    """A batch ramp, or a batch that a rewind left out: sequence number k is the same one always."""
    loader = TrainLoader(tokens, T, 4, seed=5)
    begin = data.draw(st.integers(0, 2 * loader.n_windows))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    whole, read = loader.sequences(begin, sum(sizes)), []
    for size in sizes:
        read.append(loader.sequences(begin, size))
        begin += size
    assert (np.concatenate(read) == whole).all()
    assert (loader.batch(3) == loader.sequences(12, 4)).all()


def test_windows_overlap_by_one_and_cover_the_split(tokens):
    n = TrainLoader(tokens, T, 1, seed=0).n_windows
    assert n * T + 1 <= tokens.count("train") < (n + 1) * T + 1


def test_a_step_needs_no_history(tokens):
    walked = TrainLoader(tokens, T, 8, seed=1)
    batches = [walked.batch(step) for step in range(200)]
    for step in (199, 3, 120, 0):
        assert (TrainLoader(tokens, T, 8, seed=1).batch(step) == batches[step]).all()
        assert (walked.batch(step) == batches[step]).all()
    assert (TrainLoader(tokens, T, 8, seed=2).batch(0) != batches[0]).any()
    with pytest.raises(ValueError, match="negative"):
        walked.batch(-1)


def test_order_is_the_one_of_committed_results(tokens):
    """A numpy that permutes differently would silently change every result."""
    order = TrainLoader(tokens, T, 1, seed=0)._order(0)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([0, 0])))
    assert generator.permutation(10).tolist() == [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
    assert sorted(order.tolist()) == list(range(len(order)))


def test_global_generators_are_not_moved(tokens):
    torch = pytest.importorskip("torch")
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    loader = TrainLoader(tokens, T, 8, seed=0)
    loader.batch(5)
    validation_windows(tokens, T, 64)
    after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert before == after


def test_torch_is_not_imported():
    code = "import sys, x1_pretrain.corpus.loader, x1_pretrain.corpus.curation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "datasets", "pyarrow", "scipy"} & set(done.stdout.split())


def test_documents_of_a_batch_contain_its_tokens(tokens, tokens_dir):
    loader = TrainLoader(tokens, T, 8, seed=0)
    names = tokens.document_names("train")
    starts = [*tokens.document_starts("train").tolist(), tokens.count("train")]
    for start, found in zip(loader._starts(2 * 8, 8), loader.document_ids(2), strict=True):
        expected = [
            name
            for name, begin, end in zip(names, starts, starts[1:], strict=False)
            if begin <= start + T and end > start
        ]
        assert found == expected and found


@given(data=st.data())
def test_reads_cross_shards(tokens, data):
    total = tokens.count("train")
    start = data.draw(st.integers(0, total))
    length = data.draw(st.integers(0, total - start))
    whole = np.concatenate(tokens._maps["train"])
    assert (tokens.read("train", start, length) == whole[start : start + length]).all()


def test_reads_outside_are_refused(tokens):
    with pytest.raises(IndexError, match="train"):
        tokens.read("train", tokens.count("train") - 1, 2)


def test_validation_is_the_start_of_val(tokens):
    windows = validation_windows(tokens, T, 70)
    assert windows.shape == (4, T + 1) and windows.dtype == np.int64
    assert windows[:, 1:].ravel().tolist() == tokens.read("val", 1, 64).tolist()
    assert windows[:, :-1].ravel().tolist() == tokens.read("val", 0, 64).tolist()


def test_too_few_tokens_are_said_with_numbers(tokens):
    val, train = tokens.count("val"), tokens.count("train")
    with pytest.raises(UserError, match=rf"needs {val // T * T + T + 1} tokens, .* has {val} in val"):
        validation_windows(tokens, T, val + T)
    with pytest.raises(UserError, match="15 is less than one sequence of 16"):
        validation_windows(tokens, T, 15)
    with pytest.raises(UserError, match=rf"{train} train tokens are {(train - 1) // T} sequences"):
        TrainLoader(tokens, T, 10**6, seed=0)
    assert len(validation_windows(tokens, T, (val - 1) // T * T)) == (val - 1) // T


@pytest.fixture
def copy(tokens_dir, tmp_path):
    return shutil.copytree(tokens_dir, tmp_path / "tokens")


def test_whole_folder_verifies(tokens):
    tokens.verify()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train_000001.bin", r"train_000001\.bin: truncated"),
        ("token_bytes.npy", r"token_bytes\.npy: missing or not an array"),
    ],
)
def test_files_short_by_two_bytes_are_named_on_opening(copy, name, message):
    path = copy / name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match=message):
        Tokens(copy)


@pytest.mark.parametrize(
    "name", ["val_000000.bin", "train_documents.npy", "vocab.tiktoken", "token_bytes.npy"]
)
def test_an_altered_byte_is_named_on_verifying(copy, name):
    path = copy / name
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: altered"):
        Tokens(copy).verify()


def test_missing_document_names_are_found(copy):
    path = copy / "train_sources.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(UserError, match=r"train_sources\.txt: altered"):
        Tokens(copy).verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index["shards"][0].update(sha256="0" * 64), "data_sha256 is not its own"),
        (lambda index: index["tokenizer"].update(n_vocab=999), "data_sha256 is not its own"),
        (lambda index: index.pop("shards"), "not an index of shards"),
    ],
)
def test_an_altered_index_is_refused(copy, change, message):
    path = copy / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    with pytest.raises(UserError, match=message):
        Tokens(copy)


def test_a_missing_shard_or_index_says_what_to_do(copy):
    (copy / "train_000000.bin").unlink()
    with pytest.raises(UserError, match=r"train_000000\.bin: no such shard; restore it"):
        Tokens(copy)
    (copy / "index.json").unlink()
    with pytest.raises(UserError, match=r"index\.json: no such file"):
        Tokens(copy)
