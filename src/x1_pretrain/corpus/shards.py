"""Documents into token shards: end-of-text before each document, all domains mixed by a hash order.

Two passes, so that a corpus need not fit in memory: tokens are spooled to a file in reading order,
then gathered from it in hash order. Everything written is a function of texts, tokenizer and
shard size alone.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain.corpus.documents import read_documents
from x1_pretrain.corpus.llmc import INDEX, MAX_TOKENS, SPLITS, Shard, data_digest, write_shard
from x1_pretrain.corpus.tokenizer import SAVED, GPT2Tokenizer
from x1_pretrain.deliverables.files import write_json, write_text
from x1_pretrain.errors import UserError

SPOOL = ".spool.tmp"


@dataclass(frozen=True)
class _Spooled:
    """Where the documents of one split lie in the spool file, in reading order."""

    ids: list[str] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


def write_tokens(
    documents_dir: Path, tokenizer: GPT2Tokenizer, tokens_dir: Path, shard_tokens: int
) -> dict[str, Any]:
    """Write shards, index, documents' offsets and ids, and the tokenizer into `tokens_dir`.

    Returns the summary (data/tokens.json); its `bytes_per_token` is UTF-8 bytes of text over all
    tokens, end-of-text included. Raises `UserError`, also when a split has no document.
    """
    if not 1 <= shard_tokens <= MAX_TOKENS:
        raise UserError(f"tokenizer.shard_tokens: {shard_tokens} is not from 1 to {MAX_TOKENS}")
    try:
        tokens_dir.mkdir(parents=True, exist_ok=True)
        _clear(tokens_dir)
        return _write_folder(documents_dir, tokenizer, tokens_dir, shard_tokens)
    except OSError as error:
        raise UserError(f"{tokens_dir}: could not be written ({error.strerror})") from error
    finally:
        (tokens_dir / SPOOL).unlink(missing_ok=True)


def _write_folder(
    documents_dir: Path, tokenizer: GPT2Tokenizer, tokens_dir: Path, shard_tokens: int
) -> dict[str, Any]:
    text_bytes, splits = _spool(documents_dir, tokenizer, tokens_dir / SPOOL)
    # asarray: slices of a plain array are much quicker than those of a memmap
    spool = np.asarray(np.memmap(tokens_dir / SPOOL, dtype="<u2", mode="r"))
    shards = [
        shard
        for split in SPLITS
        for shard in _write_split(tokens_dir, split, splits[split], spool, shard_tokens)
    ]
    tokenizer.save(tokens_dir)
    np.save(tokens_dir / "token_bytes.npy", tokenizer.token_bytes)
    identity = {
        "name": tokenizer.name,
        "n_vocab": tokenizer.n_vocab,
        "eot": tokenizer.eot,
        "sha256": tokenizer.sha256,
    }
    data_sha256 = data_digest(identity, shards)
    entries = [dataclasses.asdict(shard) for shard in shards]
    index = {"tokenizer": identity, "data_sha256": data_sha256, "shards": entries}
    write_json(tokens_dir / INDEX, index)  # last: a folder without it is not a finished one
    train_tokens, val_tokens = (
        sum(shard.tokens for shard in shards if shard.split == split) for split in SPLITS
    )
    return {
        "tokenizer": tokenizer.name,
        "n_vocab": tokenizer.n_vocab,
        "train_tokens": train_tokens,
        "val_tokens": val_tokens,
        "train_documents": len(splits["train"].ids),
        "val_documents": len(splits["val"].ids),
        "bytes_per_token": text_bytes / (train_tokens + val_tokens),
        "data_sha256": data_sha256,
    }


def _clear(tokens_dir: Path) -> None:
    """Remove what an earlier run wrote, the index first, so that none is left beside new shards."""
    names = (INDEX, SAVED, "*.bin", "*_documents.npy", "*_sources.txt", "token_bytes.npy")
    for name in names:
        for path in tokens_dir.glob(name):
            path.unlink()


def _spool(documents_dir: Path, tokenizer: GPT2Tokenizer, path: Path) -> tuple[int, dict[str, _Spooled]]:
    """Tokenize every document into one uint16 file; returns UTF-8 bytes read, and the splits."""
    splits = {split: _Spooled() for split in SPLITS}
    eot = np.array([tokenizer.eot], dtype=np.uint16)
    text_bytes, position = 0, 0
    with path.open("wb") as spool:
        for document in read_documents(documents_dir):
            encoded = document["text"].encode("utf-8")
            tokens = np.concatenate([eot, tokenizer.encode_array(document["text"])])
            spool.write(tokens.tobytes())
            split = splits[document["split"]]
            split.ids.append(document["id"])
            # Salted, for the plain hash has already decided the split.
            split.keys.append(int.from_bytes(hashlib.sha256(b"order" + encoded).digest()[:8]))
            split.starts.append(position)
            split.lengths.append(len(tokens))
            text_bytes += len(encoded)
            position += len(tokens)
    for name in SPLITS:
        if not splits[name].ids:
            raise UserError(
                f"{documents_dir}: no document is in the {name} split; add text, or change "
                f"curation.val_fraction"
            )
    return text_bytes, splits


def _write_split(
    tokens_dir: Path, split: str, spooled: _Spooled, tokens: np.ndarray, shard_tokens: int
) -> list[Shard]:
    order = np.argsort(np.array(spooled.keys, dtype=np.uint64), kind="stable")
    lengths = np.array(spooled.lengths, dtype=np.uint64)[order]
    starts = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths)[:-1]])
    np.save(tokens_dir / f"{split}_documents.npy", starts)
    ids = "".join(f"{spooled.ids[i]}\n" for i in order.tolist())
    write_text(tokens_dir / f"{split}_sources.txt", ids)

    def documents() -> Iterator[np.ndarray]:
        for i in order.tolist():
            yield tokens[spooled.starts[i] : spooled.starts[i] + spooled.lengths[i]]

    shards = []
    begin = 0
    for number, shard in enumerate(_pieces(documents(), shard_tokens)):
        name = f"{split}_{number:06d}.bin"
        end = begin + len(shard)
        first, last = np.searchsorted(starts, [begin, end]).tolist()
        sha256 = write_shard(tokens_dir / name, shard)
        shards.append(Shard(name, split, len(shard), last - first, sha256))
        begin = end
    return shards


def _pieces(arrays: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """The concatenation of `arrays` cut into pieces of `size`; the last may be shorter."""
    pending: list[np.ndarray] = []
    held = 0
    for array in arrays:
        while held + len(array) >= size:
            pending.append(array[: size - held])
            array = array[size - held :]
            yield np.concatenate(pending)
            pending, held = [], 0
        pending.append(array)
        held += len(array)
    if held:
        yield np.concatenate(pending)
