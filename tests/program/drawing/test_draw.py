from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InvalidSetting
from apportion.program.drawing.draw import dot, html, svg
from apportion.program.drawing.picture import picture_of
from apportion.program.exchange import from_json
from apportion.program.graph import ProgramGraph
from apportion.program.llvm import graph_of_ir

SVG = "{http://www.w3.org/2000/svg}"

LOOP = """
declare void @visit(i32)
define void @walk(i32 %n) {
entry:
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i32 %i, %n
  br i1 %more, label %body, label %done
body:
  call void @visit(i32 %i)
  %next = add i32 %i, 1
  br label %head
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def loop() -> ProgramGraph:
    return graph_of_ir(LOOP, name="loop.ll")


def chain(functions: int, instructions: int) -> ProgramGraph:
    """So many functions of so many instructions in a row."""
    nodes: list[list[Any]] = [[0, "[external]", 0, 0, None]]
    edges = []
    for function in range(functions):
        for number in range(instructions):
            if number:
                edges.append([0, 0, len(nodes) - 1, len(nodes)])
            nodes.append([0, "add", function, function, f"%{number} = add"])
    names = [[f"f{n}", {}] for n in range(functions)]
    return from_json({"nodes": nodes, "edges": edges, "functions": names, "module": []})


def test_every_node_and_every_edge_is_in_the_picture(loop: ProgramGraph) -> None:
    root = ElementTree.fromstring(svg(loop))
    drawn = {int(group.attrib["data-node"]) for group in root.iter(f"{SVG}g") if "data-node" in group.attrib}
    edges = Counter(
        int(path.attrib["data-edge"]) for path in root.iter(f"{SVG}path") if "data-edge" in path.attrib
    )
    assert drawn == set(range(loop.nodes))
    assert edges == dict.fromkeys(range(loop.size[1]), 1)


def test_a_constant_is_drawn_beside_each_of_its_uses() -> None:
    graph = graph_of_ir("define i32 @f(i32 %a) {\n %b = add i32 %a, 7\n %c = mul i32 %b, 7\n ret i32 %c\n}")
    picture = picture_of(graph)
    seven = graph.full_texts().index("i32 7")
    assert [shape.position for shape in picture.shapes if shape.node == seven] == [1, 1]


def test_instructions_stand_below_one_another_with_their_operands_to_the_right(loop: ProgramGraph) -> None:
    picture = picture_of(loop)
    place = {shape.node: shape for shape in picture.shapes if shape.beside is None}
    icmp, branch = (
        loop.texts().index("icmp"),
        loop.full_texts().index("br i1 %more, label %body, label %done"),
    )
    assert place[icmp].x == place[branch].x
    assert place[icmp].bottom < place[branch].y
    for shape in picture.shapes:
        if shape.beside is not None:
            assert shape.x > place[shape.beside].right


def test_shapes_do_not_overlap_and_stay_on_the_page(loop: ProgramGraph) -> None:
    picture = picture_of(loop)
    for number, one in enumerate(picture.shapes):
        assert one.x >= 0
        assert one.y >= 0
        assert one.right <= picture.width
        assert one.bottom <= picture.height
        for other in picture.shapes[:number]:
            assert (
                one.right <= other.x or other.right <= one.x or one.bottom <= other.y or other.bottom <= one.y
            )


def test_functions_and_blocks_are_framed_and_named(loop: ProgramGraph) -> None:
    titles = [(box.kind, box.title) for box in picture_of(loop).boxes]
    assert ("function", "walk") in titles
    assert ("block", "block 3") in titles
    assert ("strip", "root and declared functions") in titles
    assert ">visit<" in svg(loop)


def test_highlighted_nodes_have_their_colour_and_the_legend_says_why(loop: ProgramGraph) -> None:
    text = svg(loop, highlight={2: "#ff0000"}, meaning={"#ff0000": "reached"})
    root = ElementTree.fromstring(text)
    marked = [
        group.attrib["data-node"]
        for group in root.iter(f"{SVG}g")
        if any(rect.attrib.get("style") == "fill:#ff0000" for rect in group.findall(f"{SVG}rect"))
        and "data-node" in group.attrib
    ]
    assert marked == ["2"]
    assert ">reached<" in text


def test_a_large_graph_shows_whole_functions_and_says_what_is_missing() -> None:
    graph = chain(functions=5, instructions=10)
    picture = picture_of(graph, limit=25)
    assert {int(graph.node_function[shape.node]) for shape in picture.shapes} == {0, 1}
    assert picture.note.startswith("Drawn: 20 of 51 nodes, 2 of 5 functions.")
    assert "Drawn: 20 of 51 nodes" in svg(graph, limit=25)
    assert "Drawn" not in svg(graph)


def test_a_function_too_large_for_the_picture_is_drawn_from_its_beginning() -> None:
    graph = chain(functions=1, instructions=30)
    picture = picture_of(graph, limit=10)
    assert sorted(shape.node for shape in picture.shapes) == list(range(1, 11))
    assert "Drawn: 10 of 31 nodes" in picture.note


def test_a_picture_of_nothing_can_be_refused_but_a_graph_of_nothing_is_drawn() -> None:
    with pytest.raises(InvalidSetting, match="at least 1, not 0"):
        picture_of(chain(1, 1), limit=0)
    empty = from_json({"nodes": [], "edges": [], "functions": [], "module": []})
    assert ElementTree.fromstring(svg(empty)).tag == f"{SVG}svg"


@given(data=st.data())
def test_any_graph_gives_xml_with_each_node_in_it(data: st.DataObject, program_graphs: Any) -> None:
    graph = data.draw(program_graphs)
    root = ElementTree.fromstring(svg(graph, title=graph.functions[0].name if graph.functions else ""))
    assert {group.attrib["data-node"] for group in root.iter(f"{SVG}g") if "data-node" in group.attrib} == {
        str(node) for node in range(graph.nodes)
    }
    drawn = {path.attrib["data-edge"] for path in root.iter(f"{SVG}path") if "data-edge" in path.attrib}
    assert drawn == {str(edge) for edge in range(graph.size[1])}


class Page(HTMLParser):
    """What a browser would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_holds_the_picture_and_loads_nothing(loop: ProgramGraph) -> None:
    page = Page(html(loop, title="loop.ll"))
    assert not [tag for tag, found in page.tags if {"src", "href"} & set(found) and tag != "use"]
    assert sum(tag == "svg" for tag, _ in page.tags) == 1
    assert [found["data-flow"] for _, found in page.tags if "data-flow" in found] == [
        "control",
        "data",
        "call",
    ]
    assert "default-src 'none'" in html(loop)


def test_the_page_knows_all_about_each_node(loop: ProgramGraph) -> None:
    found = re.search(r'<script type="application/json" id="nodes">(.*?)</script>', html(loop), re.DOTALL)
    assert found is not None
    nodes = json.loads(found[1])
    assert len(nodes) == loop.nodes
    call = str(loop.texts().index("call"))
    assert nodes[call] == ["instruction", "call", "call void @visit(i32 %i)", "walk", 2]


def test_names_in_a_program_cannot_break_out_of_the_page() -> None:
    evil = "</script><script>alert(1)</script><b a='\"'>"
    graph = from_json(
        {"nodes": [[0, evil, 0, 0, evil]], "edges": [], "functions": [[evil, {}]], "module": [[evil, {}]]}
    )
    text = html(graph, title=evil, highlight={0: evil}, meaning={evil: evil})
    assert sum(tag == "script" for tag, _ in Page(text).tags) == 2
    assert "<b a=" not in text


def test_placeholders_in_a_program_stay_what_they_are() -> None:
    graph = from_json({"nodes": [[0, "{{NODES}}", 0, 0, ""]], "edges": [], "functions": [], "module": []})
    assert "{{NODES}}" in html(graph)


def test_dot_names_every_node_and_edge_in_its_cluster(loop: ProgramGraph) -> None:
    text = dot(loop, title="loop.ll", highlight={2: "red"})
    assert text.startswith('digraph "loop.ll" {')
    assert len(re.findall(r"^ +\d+ \[label=", text, re.MULTILINE)) == loop.nodes
    assert len(re.findall(r"^ +\d+ -> \d+ ", text, re.MULTILINE)) == loop.size[1]
    assert 'label="walk";' in text
    assert text.count('fillcolor="red"') == 1
    assert text.count("{") == text.count("}")


def test_dot_escapes_quotes_backslashes_and_line_ends() -> None:
    graph = from_json(
        {"nodes": [[2, "[2 x i8]", 0, 0, 'c"a\\00"\nb']], "edges": [], "functions": [], "module": []}
    )
    assert r'label="c\"a\\00\"\lb"' in dot(graph)


def test_the_pictures_of_real_kernels_hold_every_edge(shared_data: Path) -> None:
    for path in sorted((shared_data / "chai").glob("*.ll"))[:3]:
        graph = graph_of_ir(path.read_bytes(), name=path.name)
        picture = picture_of(graph, limit=10_000)
        assert {route.edge for route in picture.routes} == set(range(graph.size[1]))
        assert picture.note == ""
