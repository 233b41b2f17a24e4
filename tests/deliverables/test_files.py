import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.deliverables.files import read_json, write_bytes, write_json
from x1_pretrain.errors import UserError

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(plain)
def test_what_is_written_is_read_and_has_the_same_bytes(tmp_path_factory: pytest.TempPathFactory, value):
    folder = tmp_path_factory.mktemp("json")
    write_json(folder / "a.json", value)
    write_json(folder / "b.json", read_json(folder / "a.json"))
    assert read_json(folder / "a.json") == value
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()
    assert (folder / "a.json").read_bytes().endswith(b"\n")


@pytest.mark.parametrize("value", [float("nan"), [float("inf")]])
def test_a_number_json_lacks_is_refused_and_the_old_file_kept(tmp_path: Path, value: object):
    path = tmp_path / "a.json"
    write_json(path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, value)
    assert json.loads(path.read_text()) == 1


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"a\.bin: could not be written \(No space left on device\)"):
        write_bytes(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(("content", "reason"), [(None, "no such file"), ("{", "not valid JSON")])
def test_an_unreadable_file_is_named(tmp_path: Path, content: str | None, reason: str):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=rf"a\.json: {reason}"):
        read_json(path)
