from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from apportion.report.svg import circle, drawing, element, group, path, polyline, rect, text

SVG = "{http://www.w3.org/2000/svg}"


@given(st.text(), st.text())
def test_any_words_make_a_drawing_that_can_be_read_back(words, tip):
    picture = drawing(100, 50, [text(1, 2, words), rect(0, 0, 1, 1, "red", tip=tip)], label=words)
    root = ElementTree.fromstring(picture)
    said = root.find(f"{SVG}text")
    assert said is not None
    assert len(said.text or "") == len(words.replace("\r\n", "\n"))


def test_elements_have_the_names_and_digits_of_svg():
    assert rect(0, 1.25, 2.0, 3, "red", stroke_width=2) == (
        '<rect x="0" y="1.2" width="2" height="3" fill="red" stroke-width="2"/>'
    )
    assert circle(1, 2, 3, class_="dot", fill=None) == '<circle cx="1" cy="2" r="3" class="dot"/>'
    assert polyline([(0, 1), (2, 3)], "red") == (
        '<polyline points="0.0,1.0 2.0,3.0" fill="none" stroke="red"/>'
    )
    assert path("M0 0H5", "red") == '<path d="M0 0H5" fill="none" stroke="red"/>'
    assert group(["<a/>"], x=1.5) == '<g transform="translate(1.5 0)"><a/></g>'
    assert element("b", tip="<") == "<b><title>&lt;</title></b>"


def test_a_drawing_inside_a_page_has_no_paper_and_loads_nothing():
    inside, alone = drawing(10, 10, [], label="it", paper=None), drawing(10, 10, [], label="it")
    assert "http" not in inside
    assert "<rect" not in inside
    assert ElementTree.fromstring(alone).find(f"{SVG}rect") is not None
