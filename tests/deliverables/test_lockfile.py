"""The hashes are DVC's own, for any content of a directory."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from x1_pretrain.deliverables.lockfile import listing, md5_of_listing, read_lock
from x1_pretrain.errors import UserError

names = st.text(alphabet="ab-. Z_é", min_size=1, max_size=6).filter(lambda name: name.strip(". "))


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.tuples(st.sampled_from(["", "x", "x/y", "x-"]), names), st.binary()))
def test_a_directory_has_the_hash_dvc_gives_it(tmp_path_factory: pytest.TempPathFactory, files):
    from dvc.fs import localfs
    from dvc_data.hashfile.build import build
    from dvc_data.hashfile.db import HashFileDB

    root = tmp_path_factory.mktemp("tree")
    folder = root / "folder"
    folder.mkdir()
    for (place, name), content in files.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        path = folder / place / name
        if not path.is_dir() and not path.parent.is_file():
            path.write_bytes(content)
    database = HashFileDB(localfs, str(root / "cache"))
    _, _, built = build(database, str(folder), localfs, "md5", dry_run=True)
    assert md5_of_listing(listing(folder, lambda path: False)) == built.hash_info.value


@pytest.mark.parametrize("content", ["stages: [1]\n", "schema: '2.0'\n", "stages: {a: {deps: []}}\n"])
def test_a_lock_of_another_kind_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "dvc.lock"
    path.write_text(content)
    with pytest.raises(UserError, match=r"dvc\.lock: not a lock that DVC 3 wrote"):
        read_lock(path)
