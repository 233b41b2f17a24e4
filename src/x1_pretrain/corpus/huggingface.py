"""A Hugging Face dataset, streamed: the first `max_characters` of a split, kept in data/raw.

`datasets` is imported only when such a source is fetched; reading back needs no network.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from x1_pretrain.config import Source
from x1_pretrain.corpus.documents import write_lines
from x1_pretrain.corpus.files import read_file
from x1_pretrain.errors import UserError


def dataset_path(domain: str, raw_dir: Path) -> Path:
    return raw_dir / f"{domain}.jsonl.zst"


def fetch_dataset(source: Source, raw_dir: Path) -> str:
    """Stream texts into `<domain>.jsonl.zst` until `max_characters`; returns a line about it."""
    path = dataset_path(source.domain, raw_dir)
    count = write_lines(path, (json.dumps({"text": text}) for text in _stream(source)))
    return f"{count} documents, {path.stat().st_size / 1e6:.1f} MB, from {source.dataset}"


def read_dataset(domain: str, raw_dir: Path) -> Iterator[str]:
    """The texts fetched before, in order."""
    path = dataset_path(domain, raw_dir)
    if not path.is_file():
        raise UserError(f"{path}: no such file; run the fetch stage first")
    return read_file(path, "text")


def _stream(source: Source) -> Iterator[str]:
    import datasets

    characters = 0
    try:
        stream = datasets.load_dataset(source.dataset, source.subset, split=source.split, streaming=True)
        for row in stream:
            text = row[source.text_field] or ""
            yield text
            characters += len(text)
            if characters >= source.max_characters:
                return
    except KeyError as error:
        raise UserError(
            f"{source.dataset}: no column {source.text_field!r}; set text_field to one it has"
        ) from error
    except Exception as error:  # datasets, its hub client and their HTTP library raise many kinds
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UserError(
            f"{source.dataset}: could not be streamed ({reason}); check dataset, subset, split and "
            f"the network, or give the same text as a source of kind files"
        ) from error
