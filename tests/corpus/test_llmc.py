"""The shard format bit by bit, and every way in which a file can be wrong."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from x1_pretrain.corpus.llmc import Shard, open_shard, verify_shard, write_shard
from x1_pretrain.errors import UserError


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=50))
def test_round_trip_and_bytes(tmp_path, ids):
    path = tmp_path / "train_000000.bin"
    write_shard(path, np.array(ids, dtype=np.uint16))
    content = path.read_bytes()
    assert content[:12] == (20240520).to_bytes(4, "little") + b"\1\0\0\0" + len(ids).to_bytes(4, "little")
    assert content[12:1024] == bytes(1012)
    assert content[1024:] == b"".join(i.to_bytes(2, "little") for i in ids)
    assert open_shard(path, len(ids)).tolist() == ids


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / "val_000003.bin"
    sha256 = write_shard(path, np.arange(100, dtype=np.uint16))
    return path, Shard("val_000003.bin", "val", 100, 1, sha256)


def test_whole_shard_verifies(shard):
    verify_shard(*shard, n_vocab=100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-2], "truncated or extended shard, 1222 bytes instead of the 1224"),
        (lambda b: b + b"\0", "truncated or extended"),
        (lambda b: b[:500], "truncated shard of 500 bytes"),
        (lambda b: b"", "truncated shard of 0 bytes"),
        (lambda b: (20240801).to_bytes(4, "little") + b[4:], "begins with 20240801, 1 instead"),
        (lambda b: b[:8] + (99).to_bytes(4, "little") + b[12:], "announces 99 tokens"),
    ],
)
def test_wrong_header_or_size_is_found_on_opening(shard, change, message):
    path, entry = shard
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=rf"val_000003\.bin: .*{message}.*dvc checkout"):
        open_shard(path, entry.tokens)


@pytest.mark.parametrize("byte", [20, 1024, 1130, 1223])
def test_an_altered_byte_is_found_on_verifying(shard, byte):
    path, entry = shard
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"val_000003\.bin: altered shard"):
        verify_shard(path, entry, n_vocab=50257)


def test_an_id_outside_the_vocabulary_is_found(shard):
    with pytest.raises(UserError, match="holds id 99, n_vocab is 99"):
        verify_shard(*shard, n_vocab=99)


def test_a_missing_shard_is_named(tmp_path):
    with pytest.raises(UserError, match=r"a\.bin: no such shard"):
        open_shard(tmp_path / "a.bin", 1)
