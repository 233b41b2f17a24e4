from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.deliverables.markdown import parse_markdown

DOCUMENT = """# The spike at step 300

Two *words* and a [link](x.md) -- done.

## Evidence ##

![gradient norm](spike.png "at step 300") and ![](<b.png>)

| step | loss |
|-----:|:----:|
| 300  | 7.1  |

### In detail
```python
# not a heading
| not | a table |
|-----|---------|
![not](an-image.png)
```
last words
"""


def test_structure_of_a_document():
    assert parse_markdown(DOCUMENT) == {
        "title": "The spike at step 300",
        "sections": ["Evidence", "In detail"],
        "tables": 1,
        "images": ["spike.png", "b.png"],
        "words": 6 + 1 + 2,
    }


def test_an_empty_document_has_no_title():
    empty = {"title": None, "sections": [], "tables": 0, "images": [], "words": 0}
    assert parse_markdown("") == empty


def test_a_second_level_one_heading_is_a_section():
    assert parse_markdown("# A\n# B\n")["sections"] == ["B"]


def test_a_fence_closes_only_with_its_own_kind():
    text = "~~~\n```\n# inside\n~~~\n# outside\n"
    assert parse_markdown(text)["title"] == "outside"


def test_a_rule_is_no_table():
    assert parse_markdown("a\n---\nb | c\nd | e\n")["tables"] == 0


words = st.text(alphabet="abcxyz", min_size=1, max_size=8)
headings = st.lists(words, min_size=1, max_size=3).map(" ".join)


@given(
    headings,
    st.lists(st.tuples(headings, st.lists(words, max_size=6), st.booleans(), st.booleans())),
)
def test_what_was_written_is_found_again(title, sections):
    lines = [f"# {title}"]
    for heading, prose, table, image in sections:
        lines += [f"## {heading}", "", " ".join(prose), ""]
        lines += ["| a | b |", "|---|---|", "| 1 | 2 |", "| 3 | 4 |", ""] if table else []
        lines += [f"![{heading}]({heading.replace(' ', '-')}.png)", ""] if image else []
    parsed = parse_markdown("\n".join(lines) + "\n")
    assert parsed == {
        "title": title,
        "sections": [heading for heading, *_ in sections],
        "tables": sum(table for *_, table, _ in sections),
        "images": [f"{h.replace(' ', '-')}.png" for h, _, _, image in sections if image],
        "words": sum(len(prose) for _, prose, _, _ in sections),
    }


@given(st.text())
def test_no_text_is_refused(text: str):
    parsed = parse_markdown(text)
    assert parsed["tables"] >= 0
    assert parsed["words"] >= 0
