"""The structure of a Markdown deliverable, so that a JSON Schema can say what it must contain."""

import re
from typing import Any

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
TABLE_RULE = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
IMAGE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
WORD = re.compile(r"[^\W_]")


def parse_markdown(text: str) -> dict[str, Any]:
    """`{"title", "sections", "tables", "images", "words"}` of a document.

    `title` is the first level-1 heading (None without one), `sections` the other headings in order,
    `tables` the number of pipe tables, `images` their targets in order, and `words` those of the
    prose: what stands in headings, tables and code blocks does not count.
    """
    title: str | None = None
    sections: list[str] = []
    images: list[str] = []
    tables = words = 0
    in_table = False
    previous = ""
    for line in _lines_outside_fences(text):
        heading = HEADING.match(line)
        if "|" in line and "|" in previous and not in_table and TABLE_RULE.match(line):
            in_table = True
            tables += 1
            words -= _count_words(previous)  # the line before was the table's header, not prose
        elif in_table and "|" not in line:
            in_table = False
        if heading:
            if len(heading[1]) == 1 and title is None:
                title = heading[2]
            else:
                sections.append(heading[2])
        else:
            images += IMAGE.findall(line)
            if not in_table:
                words += _count_words(line)
        previous = "" if heading else line
    return {
        "title": title,
        "sections": sections,
        "tables": tables,
        "images": images,
        "words": words,
    }


def _lines_outside_fences(text: str) -> list[str]:
    lines = []
    fence: str | None = None
    for line in text.splitlines():
        match = FENCE.match(line)
        if fence is None and match:
            fence = match[1]
            lines.append("")
        elif fence is not None:
            closing = match is not None and match[1].startswith(fence)
            if closing and not line.strip().strip(fence[0]):
                fence = None
        else:
            lines.append(line)
    return lines


def _count_words(line: str) -> int:
    return sum(1 for token in IMAGE.sub(" ", line).split() if WORD.search(token))
