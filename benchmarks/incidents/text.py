"""Real text that every machine has: the standard library's own source, as bytes; no download, no pipeline."""

import functools
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

EOT, N_VOCAB = 256, 257
HELD_OUT_WINDOWS = 256
PARTS = (
    "",
    "asyncio",
    "email",
    "http",
    "json",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "xml/dom",
)


@dataclass(frozen=True, eq=False)
class Text:
    """Windows [n, T+1] of the text, in an order that a seed permutes; the last of them are held out."""

    ids: np.ndarray
    seq_len: int

    @property
    def n_windows(self) -> int:
        return (len(self.ids) - 1) // self.seq_len - HELD_OUT_WINDOWS

    def batch(self, number: int, rows: int, seed: int) -> np.ndarray:
        """int64 [rows, T+1]: batch `number`, from 1; a new permutation each epoch."""
        places = range((number - 1) * rows, number * rows)
        return np.stack(
            [self.window(int(self._order(p // self.n_windows, seed)[p % self.n_windows])) for p in places]
        )

    @functools.lru_cache(maxsize=64)  # noqa: B019 - a text lives as long as its process
    def _order(self, epoch: int, seed: int) -> np.ndarray:
        return np.random.default_rng([seed, epoch]).permutation(self.n_windows)

    def held_out(self, rows: int, batches: int) -> tuple[np.ndarray, ...]:
        """Batches that no run trains on."""
        windows = [self.window(self.n_windows + i) for i in range(rows * batches)]
        return tuple(np.stack(windows[i * rows : (i + 1) * rows]) for i in range(batches))

    def window(self, index: int) -> np.ndarray:
        return self.ids[index * self.seq_len : (index + 1) * self.seq_len + 1].astype(np.int64)


def standard_library(seq_len: int) -> Text:
    """About 5 MB of Python, documents apart by end-of-text."""
    root = Path(sysconfig.get_path("stdlib"))
    pieces = []
    for part in PARTS:
        for path in sorted((root / part).glob("*.py")):
            pieces += [np.array([EOT], dtype=np.uint16), np.frombuffer(path.read_bytes(), dtype=np.uint8)]
    return Text(np.concatenate([piece.astype(np.uint16) for piece in pieces]), seq_len)
