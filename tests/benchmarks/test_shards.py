"""Shards of another vocabulary are made once for the same texts, and anew for others."""

import argparse
import json
from pathlib import Path

import pytest
import shards

from x1_pretrain import config, paths
from x1_pretrain.corpus.documents import write_lines
from x1_pretrain.corpus.loader import Tokens
from x1_pretrain.corpus.tokenizer import GPT2Tokenizer
from x1_pretrain.study import Study, study_from


@pytest.fixture
def study() -> Study:
    return study_from("tiny")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"id": split, "text": f"a {split} text", "split": split}) for split in ("train", "val")
    ]
    write_lines(tmp_path / "documents/toy.jsonl.zst", lines)
    return tmp_path / "documents"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tokenizers that were asked for, each 257 ids."""
    names: list[str] = []

    def stand_in(settings: config.Tokenizer, raw: Path) -> GPT2Tokenizer:
        names.append(settings.name)
        return GPT2Tokenizer("gpt2:257", {bytes([byte]): byte for byte in range(256)})

    monkeypatch.setattr(shards, "load_tokenizer", stand_in)
    return names


def test_shards_are_made_once(study: Study, documents: Path, tmp_path: Path, made: list[str]) -> None:
    first = shards.shards_of(study, 257, documents, tmp_path, tmp_path / "cache")
    again = shards.shards_of(study, 257, documents, tmp_path, tmp_path / "cache")
    assert first == again and made == ["gpt2:257"]
    Tokens(first).verify()


def test_other_texts_and_other_vocabularies_get_other_shards(
    study: Study, documents: Path, tmp_path: Path, made: list[str]
) -> None:
    first = shards.shards_of(study, 257, documents, tmp_path, tmp_path / "cache")
    other = shards.shards_of(study, 300, documents, tmp_path, tmp_path / "cache")
    write_lines(documents / "more.jsonl.zst", [json.dumps({"id": "x", "text": "more", "split": "train"})])
    more = shards.shards_of(study, 257, documents, tmp_path, tmp_path / "cache")
    assert len({first, other, more}) == 3 and made == ["gpt2:257", "gpt2:300", "gpt2:257"]


def test_shards_that_were_not_finished_are_made_again(
    study: Study, documents: Path, tmp_path: Path, made: list[str]
) -> None:
    folder = shards.shards_of(study, 257, documents, tmp_path, tmp_path / "cache")
    (folder / "index.json").unlink()
    shards.shards_of(study, 257, documents, tmp_path, tmp_path / "cache")
    assert len(made) == 2


def test_a_folder_that_is_given_is_read(study: Study, made: list[str]) -> None:
    parser = argparse.ArgumentParser()
    shards.add_options(parser, vocab=4096)
    assert shards.folder_for(parser.parse_args(["--tokens", "mine"]), study) == Path("mine")
    parser = argparse.ArgumentParser()
    shards.add_options(parser, vocab=None)
    assert shards.folder_for(parser.parse_args([]), study) == paths.TOKENS
    assert made == []
