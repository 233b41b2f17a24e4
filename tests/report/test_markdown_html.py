import base64

from x1_pretrain.report.markdown_html import markdown_to_html

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_headings_go_down_and_tables_are_rendered(tmp_path):
    html = markdown_to_html("# One\n\n## Two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", tmp_path)
    assert "<h3>One</h3>" in html and "<h4>Two</h4>" in html
    assert "<td>1</td>" in html


def test_pictures_are_put_inline(tmp_path):
    (tmp_path / "spike.png").write_bytes(PIXEL)
    html = markdown_to_html("![the spike](spike.png)", tmp_path)
    assert f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}" in html
    assert 'alt="the spike"' in html


def test_nothing_is_loaded_from_elsewhere_and_raw_html_is_text(tmp_path):
    text = "<script>alert(1)</script>\n\n![x](https://example.org/x.png) ![y](//example.org/y.png)"
    html = markdown_to_html(text, tmp_path)
    assert "<script" not in html and "<img" not in html


def test_missing_picture_is_said(tmp_path):
    assert "gone.png is missing" in markdown_to_html("![x](gone.png)", tmp_path)
