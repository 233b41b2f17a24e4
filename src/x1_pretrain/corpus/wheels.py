"""Read the text inside a wheel, without installing or importing it.

A package's code never runs: the wheel is a zip file, and JSON, YAML headers and Python sources in
it are parsed as data. Every reader goes through sorted names: document n is always the same.
"""

import ast
import gzip
import html
import json
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from x1_pretrain.errors import UserError

TAG = re.compile(r"<[^>]+>")
FRONT_MATTER = re.compile(r"\A---\n.*?^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
# The fields of a statement that hold further statements; expressions hold no docstrings.
STATEMENT_FIELDS = ("body", "handlers", "orelse", "finalbody", "cases")
# What zip files, gzip, JSON and UTF-8 raise, and what a JSON of another shape leads to.
MALFORMED = (
    zipfile.BadZipFile,
    zlib.error,
    gzip.BadGzipFile,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
)
HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_wheel(path: Path, reader: str) -> Iterator[str]:
    """The texts of a wheel, in a fixed order. `reader` is a key of `READERS`.

    Raises `UserError` if the file is missing, is no wheel, or has no text for this reader.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; run the fetch stage first")
    found = False
    try:
        with zipfile.ZipFile(path) as wheel:
            for text in READERS[reader](wheel):
                found = True
                yield text
    except MALFORMED as error:
        raise UserError(
            f"{path}: reader {reader} met malformed data ({type(error).__name__}: {error})"
        ) from error
    if not found:
        raise UserError(f"{path}: reader {reader} found no text; is it the right package?")


def botocore(wheel: zipfile.ZipFile) -> Iterator[str]:
    """`documentation` strings of every service model: HTML, here as plain text on one line."""
    for _, content in _members(wheel, r"botocore/data/[^/]+/[^/]+/service-2\.json\.gz"):
        for text in _strings(json.loads(gzip.decompress(content)), "documentation"):
            yield " ".join(html.unescape(TAG.sub(" ", text)).split())


def google_discovery(wheel: zipfile.ZipFile) -> Iterator[str]:
    """`description` strings of every discovery document."""
    for _, content in _members(wheel, r"googleapiclient/discovery_cache/documents/[^/]+\.json"):
        yield from _strings(json.loads(content), "description")


def licence_texts(wheel: zipfile.ZipFile) -> Iterator[str]:
    """The body of every licence file, after the YAML front matter."""
    for _, content in _members(wheel, r"licensedcode/data/licenses/[^/]+\.LICENSE"):
        text = content.decode("utf-8").replace("\r\n", "\n")
        yield FRONT_MATTER.sub("", text, count=1).strip()


def wiki_leads(wheel: zipfile.ZipFile) -> Iterator[str]:
    """Title, short description and lead of every English article."""
    for _, content in _members(wheel, r"[^/]+/data/summaries_en-us\.json"):
        articles = json.loads(content)
        for key in sorted(articles):
            article = articles[key]
            heading = "\n".join(part for part in (article["title"], article["description"]) if part)
            yield f"{heading}\n\n{article['extract']}"


def docstrings(wheel: zipfile.ZipFile) -> Iterator[str]:
    """Docstrings of modules, classes and functions, cleaned as `inspect.cleandoc` does."""
    for name, content in _members(wheel, r".+\.py"):
        try:
            with warnings.catch_warnings():  # an invalid escape in a package is not the user's
                warnings.simplefilter("ignore")
                tree = ast.parse(content)
        except SyntaxError as error:
            raise ValueError(f"{name}: {error}") from error
        yield from _docstrings(tree)


READERS: dict[str, Callable[[zipfile.ZipFile], Iterator[str]]] = {
    reader.__name__: reader for reader in (botocore, google_discovery, licence_texts, wiki_leads, docstrings)
}


def _members(wheel: zipfile.ZipFile, pattern: str) -> Iterator[tuple[str, bytes]]:
    for name in sorted(wheel.namelist()):
        if re.fullmatch(pattern, name):
            yield name, wheel.read(name)


def _strings(node: Any, key: str) -> Iterator[str]:
    """Every string under `key`, depth first, in the order of the file."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from _strings(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from _strings(value, key)


def _docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, HAS_DOCSTRING) and (text := ast.get_docstring(node)):
        yield text
    for field in STATEMENT_FIELDS:
        for child in getattr(node, field, ()):
            yield from _docstrings(child)
