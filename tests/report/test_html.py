"""The page: whole from nothing to everything, and self-contained."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain import paths
from x1_pretrain.deliverables.files import write_json, write_text
from x1_pretrain.report import html
from x1_pretrain.report.html import DOCUMENTS, number, render

EXAMPLES = Path(__file__).parents[2] / paths.SCHEMAS / "examples/valid"
INFERENCE = json.loads((EXAMPLES / "inference.four-formats.json").read_text())
SPEEDS = json.loads((EXAMPLES / "measured-inference.free-machine.json").read_text())


class Balanced(HTMLParser):
    """Fails on a closing tag that does not match."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("br", "hr", "img"):
            assert self.open.pop() == tag


def check_page(page):
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # nothing outside the page is loaded
    assert "url(" not in page and "@import" not in page


def test_an_empty_folder_gives_a_page_that_names_every_missing_file(tmp_path):
    page = render(tmp_path)
    check_page(page)
    for path in DOCUMENTS.values():
        assert path.as_posix() in page
    assert f"{len(DOCUMENTS)} of the study's files are missing" in page


def test_numbers_of_the_deliverables_are_on_the_page(tmp_path):
    write_json(tmp_path / paths.INFERENCE, INFERENCE)
    write_json(tmp_path / paths.MEASURED / "inference.json", SPEEDS)
    write_json(
        tmp_path / paths.MEASURED / "train.json",
        {"elapsed_s": 150.0, "mfu": None, "mfu_reason": "peak not known", "tokens_per_s": 40000.0},
    )
    write_json(tmp_path / paths.FIT, {"E": {"point": 1.69, "ci95": [1.2, 2.1]}, "note": "<b>"})
    write_text(tmp_path / paths.RUNS_CSV, "run_id,val_loss\nA-seed0-b1.0,2.777\n")
    write_text(tmp_path / paths.PREDICTION_MD, "# For 1B\n\n**D_opt** is 2e10.\n")
    page = render(tmp_path)
    check_page(page)
    for expected in (
        "2.679",
        "521,968",
        "29,000",
        "0 $/h (the user&#39;s own machine)",
        "peak not known",
        "2.50",
    ):
        assert expected in page
    for expected in ("1.690", "A-seed0-b1.0", "2.777", "<strong>D_opt</strong>", "&lt;b&gt;"):
        assert expected in page


@pytest.mark.parametrize("name", ["free-machine", "rented"])
def test_the_table_of_formats_is_the_two_files(tmp_path, name):
    speeds = json.loads((EXAMPLES / f"measured-inference.{name}.json").read_text())
    write_json(tmp_path / paths.INFERENCE, INFERENCE)
    write_json(tmp_path / paths.MEASURED / "inference.json", speeds)
    (table,) = re.findall(r'id="formats">.*?</table>', render(tmp_path), flags=re.DOTALL)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr><td.*?</tr>", table)]
    rows = [[unescape(re.sub("<sup>", "^", cell)).replace("</sup>", "") for cell in row] for row in rows]
    losses = (
        ("format", 4),
        ("val_loss_nats", 4),
        ("loss_delta_nats", 3),
        ("perplexity_ratio", 5),
        ("val_bits_per_byte", 4),
        ("file_bytes", 4),
        ("memory_bytes", 4),
        ("kv_cache_bytes_per_token", 4),
        ("kv_cache_bytes", 4),
    )
    expected = []
    timed = {row["format"]: row["batches"] for row in speeds["formats"]}
    for row in INFERENCE["formats"]:
        for i, batch in enumerate(timed.get(row["format"], [{}])):
            left = [number(row[key], digits) for key, digits in losses] if i == 0 else [""]
            keys = ("batch", "prefill_tokens_per_s", "decode_tokens_per_s")
            keys += ("usd_per_million_input_tokens", "usd_per_million_output_tokens")
            expected.append(left + [number(batch.get(key)) for key in keys])
    for other in speeds["public_prices"]["prices"]:
        name = f"{other['model']} at {other['provider']}"
        expected.append([name, number(other["input"]), number(other["output"])])
    assert rows == expected


@pytest.mark.parametrize("identified", [True, False])
def test_whether_the_runs_identify_the_law_stands_in_the_open(tmp_path, identified):
    fit = {"identified": identified, "identified_why": ["Because of alpha."], "warnings": ["Beware."]}
    write_json(tmp_path / paths.FIT, fit)
    page = render(tmp_path)
    check_page(page)
    shown = page[: page.index("Everything else in the fit")]
    assert ("The runs do not identify the law." in shown) is not identified
    assert "Because of alpha." in shown and "Beware." in shown


@pytest.mark.parametrize("content", ["{", "[1]", "\x00"])
def test_an_unreadable_file_is_named_not_raised(tmp_path, content):
    write_text(tmp_path / paths.METRICS, content)
    page = render(tmp_path)
    check_page(page)
    assert "metrics.json</code> cannot be read" in page


def test_a_file_with_missing_keys_still_gives_a_page(tmp_path):
    for path in DOCUMENTS.values():
        if path.suffix == ".json":
            write_json(tmp_path / path, {})
    check_page(render(tmp_path))


def test_command_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    html.main()
    assert (tmp_path / paths.REPORT).read_text().startswith("<!doctype html>")
    assert str(paths.REPORT) in capsys.readouterr().out


@pytest.mark.parametrize(
    "value, shown",
    [
        (442368, "442,368"),
        (2.5123456, "2.512"),
        (0.0, "0"),
        ("6e12", "6.00 \N{MULTIPLICATION SIGN} 10^12"),
        (-0.00051, "-5.10 \N{MULTIPLICATION SIGN} 10^-4"),
        (True, "yes"),
        (None, "\N{EN DASH}"),
        ("A-seed0", "A-seed0"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_for_readers(value, shown):
    assert number(value) == shown


@given(st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans()))
def test_any_value_has_a_text(value):
    assert isinstance(number(value), str)


@given(st.recursive(st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_flat_keeps_every_value_of_nested_objects(value):
    rows = html.flat({"k": value})
    assert all(not isinstance(cell, dict | list) for _, cell in rows)
    assert json.dumps(rows)
