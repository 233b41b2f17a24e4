"""The user's own files: every format gives the same texts, and changes are noticed."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from x1_pretrain.corpus.files import read_file, read_recorded, record_files
from x1_pretrain.errors import UserError


def write(path, texts):
    """The texts in the format that the suffix of `path` names."""
    lines = "".join(json.dumps({"text": text, "other": 1}) + "\n" for text in texts).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines))
    elif path.suffix == ".zst":  # two frames, as appending tools make them
        half = len(lines) // 2
        compress = zstandard.ZstdCompressor().compress
        path.write_bytes(compress(lines[:half]) + compress(lines[half:]))
    else:
        path.write_bytes(lines)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(), min_size=1, max_size=5))
def test_every_format_gives_the_texts_back(tmp_path, name, texts):
    assert list(read_file(write(tmp_path / name, texts), "text")) == texts


def test_a_text_file_is_one_document(tmp_path):
    (tmp_path / "a.txt").write_bytes("line é\nline\n".encode())
    assert list(read_file(tmp_path / "a.txt", "text")) == ["line é\nline\n"]


def test_null_is_an_empty_text_and_blank_lines_are_skipped(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": null}\n\n{"text": "b"}')
    assert list(read_file(tmp_path / "a.jsonl", "text")) == ["", "b"]
    assert list(read_file(write(tmp_path / "a.parquet", [None, "b"]), "text")) == ["", "b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": ', "a.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b'{"body": "a"}\n', r"line 1: no key 'text' \(keys: body\)"),
        ("a.jsonl", b"[1]\n", "line 1: no key 'text'"),
        ("a.jsonl", b'{"text": 1}\n', "line 1: text is int"),
        ("a.jsonl", b'{"text": "\xff"}\n', "not valid JSON|UTF-8"),
        ("a.txt", b"a\xff", "byte 1 is not UTF-8"),
        ("a.jsonl.gz", b"plain", "could not be read"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99)[:-9], "could not be read"),
        ("a.jsonl.zst", b"plain", "could not be read"),
        ("a.parquet", b"plain", "Parquet"),
    ],
)
def test_malformed_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        list(read_file(tmp_path / name, "text"))
    assert str(tmp_path / name) in str(caught.value)


def test_parquet_columns_are_checked(tmp_path):
    pq.write_table(pa.table({"text": [1], "body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"no column 'title' \(columns: text, body\)"):
        list(read_file(tmp_path / "a.parquet", "title"))
    with pytest.raises(UserError, match="int64, expected a string"):
        list(read_file(tmp_path / "a.parquet", "text"))


@pytest.mark.parametrize("pattern", ["texts", "texts/**/*.txt"])
def test_recorded_files_are_read_in_order_wherever_they_lie(tmp_path, pattern):
    records = []
    for place in ("here", "there"):
        root = tmp_path / place
        (root / "texts/sub").mkdir(parents=True)
        (root / "texts/sub/b.txt").write_text("B")
        (root / "texts/a.txt").write_text("A")
        record_files("mine", str(root / pattern), root / "raw")
        records.append((root / "raw/mine.files.json").read_bytes())
        assert list(read_recorded("mine", str(root / pattern), "text", root / "raw")) == ["A", "B"]
    assert records[0] == records[1] and b"here" not in records[0]


def test_changed_added_and_removed_files_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("A")
    pattern = str(tmp_path / "*.txt")
    record_files("mine", pattern, tmp_path / "raw")

    def read():
        return list(read_recorded("mine", pattern, "text", tmp_path / "raw"))

    (tmp_path / "a.txt").write_text("other")
    with pytest.raises(UserError, match=r"a\.txt: changed"):
        read()
    (tmp_path / "b.txt").write_text("B")
    with pytest.raises(UserError, match=r"b\.txt was added"):
        read()
    (tmp_path / "a.txt").unlink()
    with pytest.raises(UserError, match=r"a\.txt was removed"):
        read()


def test_patterns_without_readable_files(tmp_path):
    with pytest.raises(UserError, match=r"no file matches.*\.parquet"):
        record_files("mine", str(tmp_path / "*.txt"), tmp_path / "raw")
    (tmp_path / "a.pdf").write_bytes(b"")
    with pytest.raises(UserError, match=r"a\.pdf: cannot be read"):
        record_files("mine", str(tmp_path / "*"), tmp_path / "raw")
    with pytest.raises(UserError, match="no file matches"):  # a folder is searched for known ones
        record_files("mine", str(tmp_path), tmp_path / "raw")
