"""The folder of token shards that a benchmark reads: one that is given, or one made for a vocabulary."""

import hashlib
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from x1_pretrain import paths
from x1_pretrain.corpus.llmc import INDEX
from x1_pretrain.corpus.shards import write_tokens
from x1_pretrain.corpus.tokenizer import load_tokenizer
from x1_pretrain.study import Study

CACHE = Path(".cache/benchmarks")


def add_options(parser: ArgumentParser, vocab: int | None) -> None:
    """`--tokens DIR` and `--vocab N`; without either, `vocab`, or the study's own shards if that is None."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tokens", type=Path, help="a folder of token shards made by this project")
    group.add_argument(
        "--vocab",
        type=int,
        default=vocab,
        help=f"make shards of gpt2:<vocab> from {paths.DOCUMENTS}, once, in {CACHE}"
        + (f" (default: {vocab})" if vocab else f" (default: read {paths.TOKENS})"),
    )


def folder_for(options: Namespace, study: Study) -> Path:
    """The folder to read. Raises `UserError` where documents or the tokenizer's wheel are missing."""
    if options.tokens is not None:
        return options.tokens
    return shards_of(study, options.vocab) if options.vocab else paths.TOKENS


def shards_of(
    study: Study, vocab: int, documents: Path = paths.DOCUMENTS, raw: Path = paths.RAW, cache: Path = CACHE
) -> Path:
    """Shards of the documents with the first `vocab` ids of GPT-2; kept, and made anew for other texts."""
    settings = replace(study.profile.tokenizer, name=f"gpt2:{vocab}")
    folder = cache / f"tokens-{vocab}-{_sha256_of_files(documents)[:12]}"
    if not (folder / INDEX).is_file():  # written last: without it the folder is not finished
        print(f"making {settings.name} shards of {documents} in {folder}", file=sys.stderr)
        write_tokens(documents, load_tokenizer(settings, raw), folder, settings.shard_tokens)
    return folder


def _sha256_of_files(folder: Path) -> str:
    sha = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        sha.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()
