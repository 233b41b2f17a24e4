"""The sampler as a user meets it: text that streams, and one sentence when something is wrong."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inference.models import SHAPE, tiny_model
from tests.inference.models import publish_at as publish_model
from x1_pretrain.corpus.tokenizer import GPT2Tokenizer, load_saved_tokenizer
from x1_pretrain.sample import continued, main, pieces, prompt_ids

BYTE_TOKENS = GPT2Tokenizer("gpt2:257", {bytes([byte]): byte for byte in range(256)})


@pytest.fixture
def sample(tmp_path, synthetic_tokens, capsys):
    """sample("text", "--seed", "1") -> exit status, stdout, stderr; on a random model of bytes."""
    tokenizer = load_saved_tokenizer(synthetic_tokens)
    publish_model(tmp_path / "model", tiny_model(SHAPE, tokenizer.n_vocab, 32), tokenizer.name)

    def run(*arguments):
        given = ["--checkpoint", str(tmp_path / "model"), "--tokens", str(synthetic_tokens)]
        status = 0
        try:
            main([*given, *arguments])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def test_a_prompt_is_continued_and_a_seed_repeats_it(sample):
    status, text, errors = sample("hello", "--max-new-tokens", "60")
    assert (status, errors) == (0, "")
    assert text.startswith("hello") and len(text) > 10
    assert sample("hello", "--max-new-tokens", "60")[1] == text
    assert sample("hello", "--max-new-tokens", "60", "--seed", "1")[1] != text


def test_samples_follow_each_other_with_the_next_seeds(sample):
    _, text, _ = sample("ab", "--samples", "2", "--seed", "5", "--max-new-tokens", "20")
    first, second = text.split("\n---\n")
    assert first == sample("ab", "--seed", "5", "--max-new-tokens", "20")[1].removesuffix("\n")
    assert second == sample("ab", "--seed", "6", "--max-new-tokens", "20")[1]


@pytest.mark.parametrize("number_format", ["bf16", "int8", "int4"])
def test_every_number_format_writes(sample, number_format):
    status, text, _ = sample("ab", "--format", number_format, "--max-new-tokens", "8", "--temperature", "0")
    assert status == 0 and text.startswith("ab")


def test_no_prompt_begins_a_document(sample):
    assert sample("--max-new-tokens", "5")[0] == 0


def test_a_prompt_may_be_a_file(sample, tmp_path):
    (tmp_path / "prompt.txt").write_text("from a file")
    assert sample(f"FILE:{tmp_path / 'prompt.txt'}", "--max-new-tokens", "2")[1].startswith("from a file")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([""], "prompt: it is empty; give some text"),
        (["x" * 32], "prompt: it has 32 tokens, the model was trained on contexts of 32"),
        (["FILE:nowhere.txt"], "prompt: nowhere.txt cannot be read"),
        (["a", "--temperature", "-1"], "--temperature: -1.0 is not a temperature; use 0"),
        (["a", "--temperature", "nan"], "--temperature: nan"),
        (["a", "--top-k", "0"], "--top-k: 0 leaves no token"),
        (["a", "--max-new-tokens", "0"], "--max-new-tokens: 0 is too few"),
        (["a", "--samples", "0"], "--samples: 0 is too few"),
        (["a", "--seed", "-1"], "--seed: -1 is out of range"),
        (
            ["a", "--checkpoint", "nowhere"],
            "--checkpoint nowhere: no checkpoint is there; run `dvc repro train`",
        ),
        (["a", "--tokens", "nowhere"], "nowhere/index.json: no such file"),
    ],
)
def test_a_mistake_is_one_sentence(sample, arguments, says):
    status, text, errors = sample(*arguments)
    assert status == 2 and text == ""
    assert errors.startswith("error: ") and errors.count("\n") == 1
    assert says in errors


def test_a_tokenizer_of_another_model_is_refused(sample, tmp_path):
    card = json.loads((tmp_path / "model/model.json").read_text())
    (tmp_path / "model/model.json").write_text(json.dumps(card | {"tokenizer": "gpt2:1024"}))
    status, _, errors = sample("a")
    assert status == 2 and "its tokenizer is gpt2:257, the checkpoint was trained with gpt2:1024" in errors


def test_text_comes_as_soon_as_its_tokens():
    read = []

    def ids():
        for token in "aé".encode():
            read.append(token)
            yield token

    stream = pieces(ids(), BYTE_TOKENS)
    assert next(stream) == "a" and len(read) == 1
    assert next(stream) == "é" and len(read) == 3


def test_the_end_of_a_document_ends_a_sample():
    from x1_pretrain.inference.generate import Sampling

    model = tiny_model(n_vocab=257)
    with torch.no_grad():
        model.head.weight.zero_()  # every token is as likely, so that end-of-text comes within thousands
    ids = list(continued(model, [256], 256, Sampling(1.0, None), 0, 5000))
    assert 0 < len(ids) < 5000 and 256 not in ids


def test_end_of_text_opens_the_prompt_and_is_never_read_in_it():
    assert prompt_ids("ab", BYTE_TOKENS, 8) == [256, 97, 98]
    assert prompt_ids(None, BYTE_TOKENS, 8) == [256]
    assert prompt_ids("<|endoftext|>", BYTE_TOKENS, 32).count(256) == 1


@settings(deadline=None)
@given(st.text())
def test_pieces_make_the_text_and_never_a_broken_character(text):
    found = list(pieces(text.encode(), BYTE_TOKENS))
    assert "".join(found) == text
    if "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in found)


@settings(deadline=None)
@given(st.lists(st.integers(0, 255)))
def test_bytes_that_are_no_utf8_do_not_stop_the_stream(ids):
    assert "".join(pieces(ids, BYTE_TOKENS)) == bytes(ids).decode("utf-8", errors="replace")


@pytest.mark.slow
def test_the_command_runs_from_a_shell(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "x1_pretrain.sample", "hello", "--checkpoint", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "no checkpoint is there" in done.stderr
