"""What is kept is a function of the texts; the split never moves a document."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from x1_pretrain.config import Curation, Source
from x1_pretrain.corpus.curation import curate, split_of
from x1_pretrain.corpus.documents import read_documents
from x1_pretrain.corpus.sources import fetch_source
from x1_pretrain.errors import UserError

SETTINGS = Curation(min_characters=5, max_characters=60, val_fraction=0.3)
SCHEMA = Path(__file__).parents[2] / "schemas/curation.schema.json"


@pytest.fixture
def corpus(tmp_path):
    """corpus({"a": [texts], ...}) -> (summary, documents), through the real files."""

    def run(domains, settings=SETTINGS, name="run"):
        raw, out = tmp_path / name / "raw", tmp_path / name / "documents"
        sources = []
        for domain, texts in domains.items():
            path = tmp_path / name / f"{domain}.jsonl"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
            source = Source(domain=domain, licence="CC0-1.0", kind="files", pattern=str(path))
            fetch_source(source, raw)
            sources.append(source)
        summary = curate(sources, settings, raw, out)
        return summary, list(read_documents(out))

    return run


def test_counts_reasons_and_order(corpus):
    summary, documents = corpus(
        {"b": ["first text", "shrt", "x" * 61, "first text"], "a": ["first text", "é second text"]}
    )
    assert [(d["id"], d["text"]) for d in documents] == [
        ("a/1", "é second text"),
        ("b/0", "first text"),
    ]
    assert summary["dropped"] == {"too_short": 1, "too_long": 1, "duplicate": 2}
    assert (summary["documents_read"], summary["documents_kept"]) == (6, 2)
    assert list(summary["domains"]) == ["b", "a"]
    assert summary["domains"]["a"]["characters"] == 13
    assert summary["domains"]["a"]["utf8_bytes"] == 14
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(summary)


def test_limits_are_inclusive(corpus):
    summary, _ = corpus({"a": ["x" * 5, "x" * 60]})
    assert summary["documents_kept"] == 2


def test_adding_a_source_moves_no_document_across_the_split(corpus):
    texts = [f"text number {n}" for n in range(200)]
    _, before = corpus({"a": texts}, name="before")
    more = {"z": [f"another {n}" for n in range(100)], "a": ["a new one", *texts]}
    summary, after = corpus(more, name="after")
    splits = {d["text"]: d["split"] for d in after}
    assert all(splits[d["text"]] == d["split"] for d in before)
    assert summary["val_documents"] == sum(d["split"] == "val" for d in after)
    assert 0.15 < summary["val_documents"] / summary["documents_kept"] < 0.45


@given(st.text(), st.floats(0.01, 0.98))
def test_split_is_the_hash_below_the_fraction_and_grows_with_it(text, fraction):
    value = int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) / 2**64
    assert split_of(text, fraction) == ("val" if value < fraction else "train")
    if split_of(text, fraction) == "val":
        assert split_of(text, fraction + 0.01) == "val"


def test_same_bytes_again_and_stale_domains_removed(corpus, tmp_path):
    texts = {"a": ["some text", "other text"], "b": ["third text"]}
    corpus(texts)
    first = {p.name: p.read_bytes() for p in (tmp_path / "run/documents").iterdir()}
    corpus(texts)
    assert first == {p.name: p.read_bytes() for p in (tmp_path / "run/documents").iterdir()}
    corpus({"a": texts["a"]})
    assert [p.name for p in (tmp_path / "run/documents").iterdir()] == ["a.jsonl.zst"]


def test_a_domain_that_keeps_nothing_is_an_error(corpus):
    with pytest.raises(UserError, match=r"\[a\]: none of its 2 documents .*1 too_short, 1 too_long"):
        corpus({"a": ["no", "x" * 61]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_fraction": 0.0}, "val_fraction: 0.0 is not between 0 and 1"),
        ({"val_fraction": 1.5}, "val_fraction: 1.5"),
        ({"min_characters": 61}, "min_characters: 61 is not between 0 and max_characters 60"),
        ({"min_characters": -1}, "min_characters: -1"),
    ],
)
def test_settings_are_checked(corpus, changes, message):
    with pytest.raises(UserError, match=message):
        corpus({"a": ["some text"]}, dataclasses.replace(SETTINGS, **changes))


def test_damaged_documents_are_named(corpus, tmp_path):
    corpus({"a": ["some text"]})
    path = tmp_path / "run/documents/a.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(UserError, match=r"a\.jsonl\.zst: damaged"):
        list(read_documents(path.parent))
    with pytest.raises(UserError, match="run the curate stage"):
        list(read_documents(tmp_path / "nowhere"))
