"""From shards to batches. Which tokens a step reads is a function of (data, seed, step) alone.

Order: a permutation by (seed, epoch) over windows of T+1 tokens of the concatenated split, after
OLMo-core's NumpyFSLDataLoader. Sequence k of a run is thus the same for any micro-batch or number
of processes, resuming needs no state but the step, and no global random generator is touched.
"""

from pathlib import Path

import numpy as np

from x1_pretrain.corpus.llmc import (
    INDEX,
    REMEDY,
    SPLITS,
    Shard,
    data_digest,
    open_shard,
    verify_shard,
)
from x1_pretrain.corpus.tokenizer import load_saved_tokenizer
from x1_pretrain.deliverables.files import read_json
from x1_pretrain.errors import UserError


class Tokens:
    """The folder data/tokens, opened: `n_vocab`, `eot`, `data_sha256`, `token_bytes`, both splits.

    Opening checks the index, every header and every size, and maps the files without reading them;
    `verify` reads them all. Raises `UserError` naming the shard.
    """

    def __init__(self, tokens_dir: Path) -> None:
        index = read_json(tokens_dir / INDEX)
        try:
            self.tokenizer: dict[str, str | int] = index["tokenizer"]
            self.n_vocab: int = index["tokenizer"]["n_vocab"]
            self.eot: int = index["tokenizer"]["eot"]
            self.data_sha256: str = index["data_sha256"]
            self.shards = [Shard(**entry) for entry in index["shards"]]
        except (KeyError, TypeError) as error:
            raise UserError(f"{tokens_dir / INDEX}: not an index of shards; {REMEDY}") from error
        if data_digest(self.tokenizer, self.shards) != self.data_sha256:
            raise UserError(f"{tokens_dir / INDEX}: altered, data_sha256 is not its own; {REMEDY}")
        self.folder = tokens_dir
        self.token_bytes = _load_array(tokens_dir / "token_bytes.npy", self.n_vocab)
        self._maps = {split: self._open(split) for split in SPLITS}
        self._ends = {
            split: np.cumsum([len(tokens) for tokens in maps], dtype=np.int64)
            for split, maps in self._maps.items()
        }

    def _open(self, split: str) -> list[np.ndarray]:
        shards = [shard for shard in self.shards if shard.split == split]
        return [open_shard(self.folder / shard.file, shard.tokens) for shard in shards]

    def count(self, split: str) -> int:
        """Number of tokens of a split, end-of-text included."""
        return int(self._ends[split][-1]) if len(self._ends[split]) else 0

    def read(self, split: str, start: int, length: int) -> np.ndarray:
        """int64 [length]: tokens of the concatenated split from `start`, across shards."""
        if not 0 <= start <= start + length <= self.count(split):
            raise IndexError(f"{split}[{start}:{start + length}] of {self.count(split)} tokens")
        out = np.empty(length, dtype=np.int64)
        shard = int(np.searchsorted(self._ends[split], start, side="right"))
        filled = 0
        while filled < length:
            tokens = self._maps[split][shard]
            offset = start + filled - (int(self._ends[split][shard]) - len(tokens))
            piece = tokens[offset : offset + length - filled]
            out[filled : filled + len(piece)] = piece
            filled += len(piece)
            shard += 1
        return out

    def document_starts(self, split: str) -> np.ndarray:
        """uint64 [documents]: where each document's end-of-text stands in the split."""
        documents = sum(shard.documents for shard in self.shards if shard.split == split)
        return _load_array(self.folder / f"{split}_documents.npy", documents)

    def document_names(self, split: str) -> list[str]:
        """Ids of the documents, in the order of `document_starts`."""
        path = self.folder / f"{split}_sources.txt"
        if not path.is_file():
            raise UserError(f"{path}: no such file; {REMEDY}")
        return path.read_text(encoding="utf-8").splitlines()

    def verify(self) -> None:
        """Read everything: each id and sha256, documents' starts, and the saved tokenizer."""
        for shard in self.shards:
            verify_shard(self.folder / shard.file, shard, self.n_vocab)
        saved = load_saved_tokenizer(self.folder)
        if not np.array_equal(saved.token_bytes, self.token_bytes):
            raise UserError(f"{self.folder / 'token_bytes.npy'}: altered; {REMEDY}")
        for split in SPLITS:
            begins = self._ends[split] - [len(tokens) for tokens in self._maps[split]]
            pairs = zip(begins, self._maps[split], strict=True)
            found = np.concatenate([begin + np.flatnonzero(m == self.eot) for begin, m in pairs])
            if not np.array_equal(found, self.document_starts(split)):
                path = self.folder / f"{split}_documents.npy"
                raise UserError(f"{path}: altered, the documents begin elsewhere; {REMEDY}")
            if len(self.document_names(split)) != len(found):
                path = self.folder / f"{split}_sources.txt"
                raise UserError(f"{path}: altered, {len(found)} documents need a line each; {REMEDY}")


class TrainLoader:
    """Batches of the train split: `batch(step)`, steps from 0, in an order fixed by `seed`.

    Window i is tokens [i T, i T + T], T = `seq_len`: its last token is the next one's first, so
    that every token but the first is a target once an epoch (a rest shorter than T is left out).
    Raises `UserError` if an epoch is less than one batch.
    """

    def __init__(self, tokens: Tokens, seq_len: int, batch_sequences: int, seed: int) -> None:
        self.tokens = tokens
        self.seq_len = seq_len
        self.batch_sequences = batch_sequences
        self.seed = seed
        self.n_windows = max(0, (tokens.count("train") - 1) // seq_len)
        if self.n_windows < batch_sequences:
            raise UserError(
                f"{tokens.folder}: {tokens.count('train')} train tokens are {self.n_windows} "
                f"sequences of seq_len {seq_len}, fewer than batch_sequences {batch_sequences}; "
                f"add text or lower one of them ({batch_sequences * seq_len + 1} tokens are needed)"
            )
        self._orders: dict[int, np.ndarray] = {}  # a cache: at most two epochs meet in a batch

    def batch(self, step: int) -> np.ndarray:
        """int64 [batch_sequences, seq_len + 1] of step `step`, counted from 0."""
        return self.sequences(step * self.batch_sequences, self.batch_sequences)

    def sequences(self, begin: int, count: int) -> np.ndarray:
        """int64 [count, seq_len + 1]: sequences of the order from number `begin`, counted from 0."""
        starts = self._starts(begin, count)
        return np.stack([self.tokens.read("train", start, self.seq_len + 1) for start in starts])

    def epoch(self, step: int) -> int:
        """The epoch, from 0, in which the first sequence of a step lies."""
        return step * self.batch_sequences // self.n_windows

    def document_ids(self, step: int) -> list[list[str]]:
        """For each sequence of a step, the ids of the documents with a token in it."""
        return self.documents_of(step * self.batch_sequences, self.batch_sequences)

    def documents_of(self, begin: int, count: int) -> list[list[str]]:
        """The same for sequences from number `begin` of the order."""
        starts = self.tokens.document_starts("train")
        names = self.tokens.document_names("train")
        found = []
        for start in self._starts(begin, count):
            first = int(np.searchsorted(starts, np.uint64(start), side="right")) - 1
            last = int(np.searchsorted(starts, np.uint64(start + self.seq_len), side="right"))
            found.append(names[first:last])
        return found

    def _starts(self, begin: int, count: int) -> list[int]:
        """Where the windows of these sequences begin in the train split."""
        if begin < 0:
            raise ValueError(f"sequence {begin} is negative")
        return [
            int(self._order(k // self.n_windows)[k % self.n_windows]) * self.seq_len
            for k in range(begin, begin + count)
        ]

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, epoch])))
            kept = {e: order for e, order in self._orders.items() if e == epoch - 1}
            order = generator.permutation(self.n_windows).astype(np.uint32)
            self._orders = {**kept, epoch: order}
        return self._orders[epoch]


def validation_windows(tokens: Tokens, seq_len: int, val_tokens: int) -> np.ndarray:
    """int64 [val_tokens // seq_len, seq_len + 1]: the same first tokens of the val split always.

    Each window's last token is the next one's first, so the targets are exactly
    (val_tokens // seq_len) * seq_len consecutive tokens. Raises `UserError` if val is too small.
    """
    n_windows = val_tokens // seq_len
    if n_windows < 1:
        raise UserError(f"train.val_tokens: {val_tokens} is less than one sequence of {seq_len}")
    needed, present = n_windows * seq_len + 1, tokens.count("val")
    if present < needed:
        raise UserError(
            f"train.val_tokens: {val_tokens} needs {needed} tokens, {tokens.folder} has {present} "
            f"in val; lower it to at most {max(0, (present - 1) // seq_len) * seq_len}, or raise "
            f"curation.val_fraction"
        )
    starts = range(0, n_windows * seq_len, seq_len)
    return np.stack([tokens.read("val", start, seq_len + 1) for start in starts])


def _load_array(path: Path, length: int) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: missing or not an array of numpy ({error}); {REMEDY}") from error
    if array.shape != (length,):
        raise UserError(f"{path}: shape {array.shape} instead of ({length},); {REMEDY}")
    return array
