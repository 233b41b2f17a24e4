"""Each reader finds exactly the text of its package, in a fixed order, and runs no code of it."""

import gzip
import json

import pytest

from x1_pretrain.corpus.wheels import READERS, read_wheel
from x1_pretrain.errors import UserError


def test_botocore_documentation_is_plain_text(make_wheel):
    model = {
        "documentation": "<p>Sends &lt;b&gt;&amp;c<br/>to <code>S3</code>.</p>",
        "shapes": {"A": {"members": {"documentation": {"documentation": "a member so named"}}}},
    }
    members = {
        "botocore/data/z/2020/service-2.json.gz": gzip.compress(b'{"documentation": "last"}'),
        "botocore/data/a/2020/service-2.json.gz": gzip.compress(json.dumps(model).encode()),
        "botocore/data/a/2020/paginators-1.json.gz": gzip.compress(b'{"documentation": "no"}'),
    }
    path = make_wheel("botocore", members)
    assert list(read_wheel(path, "botocore")) == [
        "Sends <b>&c to S3 .",
        "a member so named",
        "last",
    ]


def test_google_descriptions_are_untouched(make_wheel):
    document = {"description": " as it is\n", "resources": [{"description": "two"}]}
    folder = "googleapiclient/discovery_cache/documents"
    members = {f"{folder}/a.v1.json": json.dumps(document).encode(), f"{folder}/a.txt": b"no"}
    path = make_wheel("google", members)
    assert list(read_wheel(path, "google_discovery")) == [" as it is\n", "two"]


@pytest.mark.parametrize(
    ("content", "body"),
    [
        (b"---\nkey: a\nnotes: a --- b\n---\n\nThe licence.\n---\nmore\n", "The licence.\n---\nmore"),
        (b"---\r\nkey: a\r\n---\r\nThe licence.\r\n", "The licence."),
        (b"---\nkey: empty\n---", ""),
        (b"No front matter.", "No front matter."),
    ],
)
def test_licence_body_follows_the_front_matter(make_wheel, content, body):
    path = make_wheel("licences", {"licensedcode/data/licenses/a.LICENSE": content})
    assert list(read_wheel(path, "licence_texts")) == [body]


def test_wiki_leads_in_order_of_titles(make_wheel):
    article = {"title": "B", "description": "a letter", "extract": "B is é.", "topic": "x"}
    other = {"title": "A", "description": "", "extract": "A is.", "topic": "x"}
    content = json.dumps({"B": article, "A": other}, ensure_ascii=False).encode()
    path = make_wheel("wiki", {"ovos/data/summaries_en-us.json": content})
    assert list(read_wheel(path, "wiki_leads")) == ["A\n\nA is.", "B\na letter\n\nB is é."]


def test_docstrings_without_running_the_code(make_wheel):
    source = '''"""Module."""
raise SystemExit("imported")
class A:
    """Class.

       Indented."""
    if True:
        def f(self):
            "One line."
            x = "not a docstring \\d"
    async def g(self): "Inline."
try:
    pass
except ValueError:
    def h():
        """In a handler."""
'''
    path = make_wheel("code", {"code/a.py": source.encode(), "code/b.txt": b'"""no"""'})
    assert list(read_wheel(path, "docstrings")) == [
        "Module.",
        "Class.\n\nIndented.",
        "One line.",
        "Inline.",
        "In a handler.",
    ]


@pytest.mark.parametrize("reader", READERS)
def test_a_wheel_without_text_is_named(make_wheel, reader):
    path = make_wheel("empty", {"empty/data.bin": b"\x00"})
    with pytest.raises(UserError, match=f"empty-1.0.*{reader} found no text"):
        list(read_wheel(path, reader))


@pytest.mark.parametrize(
    ("reader", "name", "content"),
    [
        ("botocore", "botocore/data/a/b/service-2.json.gz", b"not gzip"),
        ("botocore", "botocore/data/a/b/service-2.json.gz", gzip.compress(b"{not json")),
        ("docstrings", "a/b.py", b"def broken(:"),
        ("docstrings", "a/b.py", b"null \x00 byte"),
        ("licence_texts", "licensedcode/data/licenses/a.LICENSE", b"\xff\xfe"),
        ("wiki_leads", "a/data/summaries_en-us.json", b'{"A": {"title": "A"}}'),
        ("wiki_leads", "a/data/summaries_en-us.json", b"[1]"),
    ],
)
def test_malformed_member_is_one_sentence(make_wheel, reader, name, content):
    path = make_wheel("broken", {name: content})
    with pytest.raises(UserError, match=r"broken-1\.0.*malformed"):
        list(read_wheel(path, reader))


def test_no_wheel_and_no_zip(tmp_path):
    with pytest.raises(UserError, match="run the fetch stage"):
        list(read_wheel(tmp_path / "a.whl", "botocore"))
    (tmp_path / "a.whl").write_bytes(b"PK not a zip")
    with pytest.raises(UserError, match=r"a\.whl"):
        list(read_wheel(tmp_path / "a.whl", "botocore"))
