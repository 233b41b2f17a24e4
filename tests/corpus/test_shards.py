"""The token folder: every document once, end-of-text before it, in an order of its own hash."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from x1_pretrain.corpus.documents import read_documents, write_lines
from x1_pretrain.corpus.loader import Tokens
from x1_pretrain.corpus.shards import write_tokens
from x1_pretrain.errors import UserError

SCHEMA = Path(__file__).parents[2] / "schemas/tokens.schema.json"


def stream(folder, split):
    tokens = Tokens(folder)
    return tokens.read(split, 0, tokens.count(split))


@pytest.mark.parametrize("split", ["train", "val"])
def test_documents_come_back_by_their_offsets(documents_dir, tokens_dir, small_tokenizer, split):
    tokens = Tokens(tokens_dir)
    ids = stream(tokens_dir, split)
    starts = tokens.document_starts(split).tolist()
    assert tokens.document_starts(split).dtype == np.uint64
    texts = {d["id"]: d["text"] for d in read_documents(documents_dir) if d["split"] == split}
    names = tokens.document_names(split)
    assert sorted(names) == sorted(texts)
    for name, begin, end in zip(names, starts, [*starts[1:], len(ids)], strict=True):
        assert ids[begin] == small_tokenizer.eot
        assert small_tokenizer.decode(ids[begin + 1 : end]) == texts[name]


def test_domains_are_mixed(tokens_dir):
    domains = [name.split("/")[0] for name in Tokens(tokens_dir).document_names("train")]
    changes = sum(a != b for a, b in pairwise(domains))
    assert changes > len(domains) / 4


def test_shard_size_changes_files_and_not_the_stream(documents_dir, tokens_dir, small_tokenizer, tmp_path):
    summary = write_tokens(documents_dir, small_tokenizer, tmp_path, shard_tokens=10**8)
    assert [s.file for s in Tokens(tmp_path).shards] == ["train_000000.bin", "val_000000.bin"]
    many = Tokens(tokens_dir).shards
    assert {s.tokens for s in many if s.split == "train"} >= {1000} and len(many) > 4
    for split in ("train", "val"):
        assert (stream(tmp_path, split) == stream(tokens_dir, split)).all()
        assert sum(s.documents for s in many if s.split == split) == summary[f"{split}_documents"]


def test_order_is_that_of_texts_not_of_files(documents_dir, tokens_dir, small_tokenizer, tmp_path):
    renamed = tmp_path / "documents"
    renamed.mkdir()
    shutil.copy(documents_dir / "one.jsonl.zst", renamed / "z.jsonl.zst")
    shutil.copy(documents_dir / "two.jsonl.zst", renamed / "a.jsonl.zst")
    write_tokens(renamed, small_tokenizer, tmp_path / "tokens", 1000)
    assert (stream(tmp_path / "tokens", "train") == stream(tokens_dir, "train")).all()


def test_same_bytes_again_over_an_older_run(documents_dir, tokens_dir, small_tokenizer, tmp_path):
    write_tokens(documents_dir, small_tokenizer, tmp_path, shard_tokens=300)
    write_tokens(documents_dir, small_tokenizer, tmp_path, shard_tokens=1000)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {path.name: path.read_bytes() for path in tokens_dir.iterdir()}


def test_summary_is_valid_and_true(documents_dir, small_tokenizer, tmp_path):
    summary = write_tokens(documents_dir, small_tokenizer, tmp_path, shard_tokens=777)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(summary)
    tokens = Tokens(tmp_path)
    text_bytes = sum(len(d["text"].encode()) for d in read_documents(documents_dir))
    counted = sum(int(tokens.token_bytes[stream(tmp_path, split)].sum()) for split in ("train", "val"))
    assert counted == text_bytes
    assert summary["train_tokens"] == tokens.count("train")
    assert summary["bytes_per_token"] == text_bytes / (summary["train_tokens"] + summary["val_tokens"])
    assert summary["data_sha256"] == tokens.data_sha256


def test_identity_follows_text_and_tokenizer(documents_dir, tokens_dir, small_tokenizer, tmp_path):
    documents = list(read_documents(documents_dir))
    documents[7]["text"] += "!"
    write_lines(tmp_path / "d/one.jsonl.zst", map(json.dumps, documents))
    changed = write_tokens(tmp_path / "d", small_tokenizer, tmp_path / "t", 1000)
    assert changed["data_sha256"] != Tokens(tokens_dir).data_sha256


def test_bad_settings_and_empty_splits(documents_dir, small_tokenizer, tmp_path):
    with pytest.raises(UserError, match="shard_tokens: 0 is not from 1"):
        write_tokens(documents_dir, small_tokenizer, tmp_path, 0)
    only_train = json.dumps({"id": "a/0", "text": "text", "split": "train"})
    write_lines(tmp_path / "d/a.jsonl.zst", [only_train])
    with pytest.raises(UserError, match=r"no document is in the val split.*val_fraction"):
        write_tokens(tmp_path / "d", small_tokenizer, tmp_path / "t", 1000)
    assert list((tmp_path / "t").iterdir()) == []
