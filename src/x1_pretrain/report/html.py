"""`python -m x1_pretrain.report.html`: the whole study as one page that opens without a network.

Every number comes from a deliverable and every section says from which file; a file that is not
there, or cannot be read, is named where its content would have stood.
"""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from x1_pretrain import paths
from x1_pretrain.deliverables.files import write_text
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.report.markdown_html import markdown_to_html, picture

DASH = "\N{EN DASH}"
DOCUMENTS: dict[str, Path] = {
    "curation": paths.CURATION,
    "tokens": paths.TOKENS_SUMMARY,
    "metrics": paths.METRICS,
    "manifest": paths.MANIFEST,
    "loss_curve": paths.LOSS_CURVE,
    "runs": paths.RUNS_CSV,
    "fit": paths.FIT,
    "iso_flop": paths.ISO_FLOP,
    "prediction": paths.PREDICTION_MD,
    "score": paths.SCORE,
    "spike_figure": paths.SPIKE_FIGURE,
    "postmortem": paths.POSTMORTEM,
    "inference": paths.INFERENCE,
    "inference_speed": paths.MEASURED / "inference.json",
    "validation": paths.VALIDATION,
}


@dataclass(frozen=True)
class Document:
    """A deliverable as the template sees it: parsed JSON, rows, HTML or a picture; or a problem."""

    path: str
    content: Any
    problem: str | None

    @property
    def ok(self) -> bool:
        return self.problem is None


def read_document(root: Path, relative: Path) -> Document:
    """One deliverable below `root`; whatever is wrong with it becomes its `problem`."""
    path, name = root / relative, relative.as_posix()
    if not path.is_file():
        return Document(name, None, "is not there: the stage that makes it has not run")
    try:
        return Document(name, _content(path), None)
    except (ValueError, OSError) as error:
        return Document(name, None, f"cannot be read ({error})")


def _content(path: Path) -> Any:
    if path.suffix == ".png":
        return picture(path, path.stem.replace("-", " "))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return markdown_to_html(text, path.parent)
    if path.suffix == ".csv":
        return [dict(row) for row in csv.DictReader(text.splitlines())]
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("expected a JSON object")
    return content


def number(value: Any, digits: int = 4) -> str:
    """A number for a reader: thousands separated, four significant digits, a dash for unknown."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return DASH
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if 1e3 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e3:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{value:.{decimals}f}"
    mantissa, exponent = f"{value:.{max(0, digits - 2)}e}".split("e")
    return f"{mantissa} \N{MULTIPLICATION SIGN} 10^{int(exponent)}"


def typeset(text: str) -> Markup:
    """`10^12` with a raised exponent."""
    before, caret, exponent = text.partition("^")
    return Markup("{}<sup>{}</sup>").format(before, exponent) if caret else Markup("{}").format(text)


def flat(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested JSON as dotted keys and plain values, in the file's order."""
    rows: list[tuple[str, Any]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += flat(value, f"{name}.")
        elif isinstance(value, list):
            plain = all(not isinstance(item, Mapping | list) for item in value)
            rows.append((name, ", ".join(map(_plain, value)) if plain else f"{len(value)} entries"))
        else:
            rows.append((name, value))
    return rows


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def merged_inference(loss: Document, speed: Document) -> list[dict[str, Any]]:
    """One row per format: loss and sizes from the hashed file; from the measured one, `batches`."""
    if not loss.ok:
        return []
    speeds = {row.get("format"): row for row in (speed.content or {}).get("formats", [])}
    rows = loss.content.get("formats", [])
    return [{"batches": [], **speeds.get(row.get("format"), {}), **row} for row in rows]


def render(root: Path) -> str:
    """The page of the study whose deliverables lie below `root`."""
    documents = {name: read_document(root, path) for name, path in DOCUMENTS.items()}
    measured = [
        read_document(root, path.relative_to(root)) for path in sorted((root / paths.MEASURED).glob("*.json"))
    ]
    environment = Environment(
        loader=PackageLoader("x1_pretrain.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value, digits=4: typeset(number(value, digits))
    environment.filters["flat"] = flat
    return environment.get_template("report.html.j2").render(
        measured=measured,
        inference_rows=merged_inference(documents["inference"], documents["inference_speed"]),
        constants=("E", "A", "alpha", "B", "beta"),
        missing=[document for document in documents.values() if not document.ok],
        **documents,
    )


@exit_on_user_error
def main() -> None:
    write_text(paths.REPORT, render(Path()))
    print(f"wrote {paths.REPORT}")


if __name__ == "__main__":
    main()
