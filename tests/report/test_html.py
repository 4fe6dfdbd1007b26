from xml.etree import ElementTree

from apportion.report import html


def test_a_page_escapes_its_title_and_leaves_out_empty_parts():
    page = html.page("a < b", [html.heading("x & y"), "", html.figure("<svg/>", "it")])
    assert page.count("a &lt; b") == 2
    assert "<h2>x &amp; y</h2>\n<figure><svg/><figcaption>it</figcaption></figure>\n</body>" in page
    assert "http" not in page
    assert ElementTree.fromstring(page.removeprefix("<!doctype html>")).tag == "html"


def test_a_key_names_its_colours():
    assert html.key([("#fff", "<white>")]) == (
        '<div class="key"><i style="background:#fff"></i>&lt;white&gt; </div>'
    )
