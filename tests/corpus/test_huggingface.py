"""Streaming stops at max_characters; every failure of the library is one sentence."""

import sys
from types import SimpleNamespace

import pytest

from x1_pretrain.config import Source
from x1_pretrain.corpus.huggingface import fetch_dataset, read_dataset
from x1_pretrain.errors import UserError

SOURCE = Source(
    domain="web",
    licence="ODC-By",
    kind="huggingface",
    dataset="owner/name",
    subset="sample",
    split="train",
    max_characters=10,
)


def use(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))


def test_stream_is_cut_and_read_back(tmp_path, monkeypatch):
    def load_dataset(name, subset, split, streaming):
        assert (name, subset, split, streaming) == ("owner/name", "sample", "train", True)
        yield from ({"text": text} for text in ["four", None, "\ud800 seven", "never"])

    use(monkeypatch, load_dataset)
    assert "3 documents" in fetch_dataset(SOURCE, tmp_path)
    assert list(read_dataset("web", tmp_path)) == ["four", "", "\ud800 seven"]


def test_failures_are_one_sentence(tmp_path, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach\nthe hub")

    use(monkeypatch, unreachable)
    with pytest.raises(UserError, match=r"owner/name: .*network, or give") as caught:
        fetch_dataset(SOURCE, tmp_path)
    assert "\n" not in str(caught.value)
    use(monkeypatch, lambda *_, **__: iter([{"body": "a"}]))
    with pytest.raises(UserError, match="no column 'text'"):
        fetch_dataset(SOURCE, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="run the fetch stage"):
        read_dataset("web", tmp_path)
