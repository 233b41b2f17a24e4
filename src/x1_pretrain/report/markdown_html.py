"""Markdown documents of the study as HTML fragments that need nothing from outside the page."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

MEDIA_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}


def data_uri(path: Path) -> str:
    """A picture as a `data:` URI, so that the page can be mailed as one file."""
    encoded = base64.b64encode(path.read_bytes()).decode("ascii")
    return f"data:{MEDIA_TYPES[path.suffix.lower()]};base64,{encoded}"


def picture(path: Path, alt: str) -> Markup:
    """An `<img>` with the picture inside, or a sentence that says it is missing."""
    if path.suffix.lower() not in MEDIA_TYPES or not path.is_file():
        return Markup('<span class="missing">picture {} is missing</span>').format(path.as_posix())
    return Markup('<img src="{}" alt="{}">').format(data_uri(path), alt)


def markdown_to_html(text: str, folder: Path, demote: int = 2) -> Markup:
    """CommonMark with tables to HTML.

    Raw HTML is shown as text, pictures are looked up relative to `folder` and put inline, headings
    go down by `demote` levels so that they fit under the page's own.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("image", _image_rule)
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + demote)}"
    html = parser.renderer.render(tokens, parser.options, {"folder": folder})
    return Markup(html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>"))


def _image_rule(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: dict[str, Any]) -> str:
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    if "://" in source or source.startswith(("//", "data:")):  # a page that loads nothing
        return str(escape(f"[{token.content or 'picture'}: {source[:200]}]"))
    return str(picture(env["folder"] / source, token.content))
