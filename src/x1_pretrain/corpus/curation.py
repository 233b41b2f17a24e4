"""Which texts are kept, and which are held out: exact dedup, length limits, split by hash.

All three are functions of a document's own text (dedup: and of the earlier ones), so that adding a
source never moves a document from one split to the other.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from x1_pretrain.config import Curation, Source
from x1_pretrain.corpus.documents import write_lines
from x1_pretrain.corpus.sources import check_sources, describe, read_source
from x1_pretrain.errors import UserError

REASONS = ("too_short", "too_long", "duplicate")


def split_of(text: str, val_fraction: float) -> str:
    """ "val" for the fraction of texts whose sha256, read as a number in [0, 1), is below it."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return _split(digest, val_fraction)


def curate(
    sources: Sequence[Source],
    curation: Curation,
    raw_dir: Path,
    documents_dir: Path,
    where: str = "corpus.sources",
) -> dict[str, Any]:
    """Write `<domain>.jsonl.zst` for each source; returns the summary (data/curation.json).

    Of equal texts the first is kept, in the order of the sources. Raises `UserError`, also when a
    domain keeps nothing.
    """
    check_sources(sources, where)
    _check(curation)
    for stale in documents_dir.glob("*.jsonl.zst"):
        stale.unlink()
    seen: set[bytes] = set()
    dropped: Counter[str] = Counter()
    domains = {}
    for source in sources:
        counts: Counter[str] = Counter()
        lines = _kept_lines(source, curation, raw_dir, seen, counts)
        write_lines(documents_dir / f"{source.domain}.jsonl.zst", lines)
        if not counts["documents"]:
            raise UserError(
                f"{where}[{source.domain}]: none of its {counts['read']} documents was kept "
                f"({', '.join(f'{counts[r]} {r}' for r in REASONS)}); change the limits of "
                f"curation or remove the source"
            )
        dropped.update({key: counts[key] for key in ("read", *REASONS)})
        domains[source.domain] = {
            "licence": source.licence,
            "source": describe(source),
            **{key: counts[key] for key in ("documents", "characters", "utf8_bytes")},
            "val_documents": counts["val_documents"],
        }
    kept = sum(domain["documents"] for domain in domains.values())
    val = sum(domain["val_documents"] for domain in domains.values())
    return {
        "documents_read": dropped["read"],
        "documents_kept": kept,
        "dropped": {reason: dropped[reason] for reason in REASONS},
        "train_documents": kept - val,
        "val_documents": val,
        "domains": domains,
    }


def _kept_lines(
    source: Source, curation: Curation, raw_dir: Path, seen: set[bytes], counts: Counter[str]
) -> Iterator[str]:
    for document in read_source(source, raw_dir):
        counts["read"] += 1
        text = document.text
        if len(text) < curation.min_characters:
            counts["too_short"] += 1
            continue
        if len(text) > curation.max_characters:
            counts["too_long"] += 1
            continue
        encoded = text.encode("utf-8")
        digest = hashlib.sha256(encoded).digest()
        if digest[:16] in seen:  # 128 bits: a chance collision is out of the question
            counts["duplicate"] += 1
            continue
        seen.add(digest[:16])
        split = _split(digest, curation.val_fraction)
        counts["documents"] += 1
        counts["characters"] += len(text)
        counts["utf8_bytes"] += len(encoded)
        counts["val_documents"] += split == "val"
        yield json.dumps({"id": document.id, "text": text, "split": split}, ensure_ascii=False)


def _split(digest: bytes, val_fraction: float) -> str:
    return "val" if int.from_bytes(digest[:8], "big") < val_fraction * 2**64 else "train"


def _check(curation: Curation) -> None:
    if not 0 < curation.val_fraction < 1:
        raise UserError(f"curation.val_fraction: {curation.val_fraction} is not between 0 and 1")
    if not 0 <= curation.min_characters <= curation.max_characters:
        raise UserError(
            f"curation.min_characters: {curation.min_characters} is not between 0 and "
            f"max_characters {curation.max_characters}"
        )
