"""One shard of tokens in llm.c's `.bin` format, which modded-nanogpt and published shards share.

256 little-endian int32 of header: 20240520, version 1, number of tokens, zeros; then uint16 tokens
(karpathy/llm.c, dev/data/data_common.py). A shard that is not exactly that is named and refused.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain.config import digest
from x1_pretrain.deliverables.files import sha256_of, write_bytes
from x1_pretrain.errors import UserError

MAGIC = 20240520
VERSION = 1
HEADER_BYTES = 1024
MAX_TOKENS = 2**31 - 1
SPLITS = ("train", "val")
INDEX = "index.json"
REMEDY = "restore it with `dvc checkout`, or make it again with `dvc repro -f -s tokenize`"


@dataclass(frozen=True)
class Shard:
    """What index.json says of one file; `documents` counts those that begin in it."""

    file: str
    split: str
    tokens: int
    documents: int
    sha256: str


def data_digest(tokenizer: dict[str, Any], shards: Sequence[Shard]) -> str:
    """sha256 over the tokenizer's identity and every shard's entry: the identity of the data."""
    return digest(tokenizer, *shards)


def write_shard(path: Path, tokens: np.ndarray) -> str:
    """Write uint16 [tokens] as one shard; returns the sha256 of the file."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    content = header.tobytes() + tokens.astype("<u2", casting="equiv", copy=False).tobytes()
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def open_shard(path: Path, tokens: int) -> np.ndarray:
    """The `tokens` tokens of a shard as a read-only map of the file, uint16 [tokens].

    Checks header and size, which costs nothing; raises `UserError` naming the file.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such shard; {REMEDY}")
    size = path.stat().st_size
    if size < HEADER_BYTES:
        raise UserError(f"{path}: truncated shard of {size} bytes, its header alone is 1024; {REMEDY}")
    magic, version, announced = np.fromfile(path, dtype="<i4", count=3).tolist()
    if (magic, version) != (MAGIC, VERSION):
        raise UserError(
            f"{path}: not a GPT-2 shard, its header begins with {magic}, {version} instead of "
            f"{MAGIC}, {VERSION}; {REMEDY}"
        )
    if announced != tokens:
        raise UserError(
            f"{path}: altered shard, its header announces {announced} tokens and index.json "
            f"{tokens}; {REMEDY}"
        )
    if size != HEADER_BYTES + 2 * tokens:
        raise UserError(
            f"{path}: truncated or extended shard, {size} bytes instead of the "
            f"{HEADER_BYTES + 2 * tokens} that {tokens} tokens take; {REMEDY}"
        )
    mapped = np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES, shape=(tokens,))
    return np.asarray(mapped)  # slices of a plain array are much quicker than those of a memmap


def verify_shard(path: Path, shard: Shard, n_vocab: int) -> None:
    """Read a whole shard: ids below `n_vocab`, sha256 as in the index. Raises `UserError`."""
    tokens = open_shard(path, shard.tokens)
    if (highest := int(tokens.max())) >= n_vocab:
        raise UserError(f"{path}: altered shard, it holds id {highest}, n_vocab is {n_vocab}; {REMEDY}")
    if (actual := sha256_of(path)) != shard.sha256:
        raise UserError(
            f"{path}: altered shard, its sha256 is {actual}, in index.json {shard.sha256}; {REMEDY}"
        )
