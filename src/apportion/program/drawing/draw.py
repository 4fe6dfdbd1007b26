"""Program graphs to look at: DOT for Graphviz, SVG and a page of HTML made here.

The SVG needs nothing but a viewer. The page holds the same picture and loads nothing; it can be
moved, zoomed and searched, and says all about the node under the pointer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files

from apportion.program.drawing.picture import Picture, Shape, picture_of
from apportion.program.graph import Flow, NodeType, ProgramGraph
from apportion.report.svg import drawing, element, group, legal, rect, text

LIMIT = 1500
"Of nodes in a picture, unless another is given: more is no longer read by eye."

NODE_COLOURS: Mapping[NodeType, tuple[str, str]] = {
    NodeType.INSTRUCTION: ("#dbe9fb", "#2563a8"),
    NodeType.VARIABLE: ("#fdf0cf", "#b07d10"),
    NodeType.CONSTANT: ("#f6dcec", "#a83a7c"),
    NodeType.TYPE: ("#e7e7ea", "#6b6f76"),
}
"Fill and outline."

FLOW_COLOURS: Mapping[Flow, str] = {
    Flow.CONTROL: "#33415c",
    Flow.DATA: "#d97706",
    Flow.CALL: "#0d8a72",
    Flow.TYPE: "#8b8f98",
}

_FLOW_LINES = {
    Flow.CONTROL: ("1.8", ""),
    Flow.DATA: ("1.2", ""),
    Flow.CALL: ("1.1", "5 4"),
    Flow.TYPE: ("1", "2 3"),
}
_BACK_TO_FRONT = (Flow.TYPE, Flow.CALL, Flow.DATA, Flow.CONTROL)
_HEAD = 62
"Height of the title and the legend."


def dot(graph: ProgramGraph, *, highlight: Mapping[int, str] | None = None, title: str = "") -> str:
    """The whole graph in Graphviz' language, functions as clusters.

    Args:
        graph: what to draw.
        highlight: node → colour.
        title: the graph's name.
    """
    marked = highlight or {}
    lines = [
        f"digraph {_quoted(title or 'program')} {{",
        '  node [shape=box, style="filled,rounded", fontname=monospace];',
    ]
    texts, full_texts = graph.texts(), graph.full_texts()
    kinds, functions = graph.node_type.tolist(), graph.node_function.tolist()
    clusters: dict[int | None, list[str]] = {None: []}
    for node, (words, full_text, kind) in enumerate(zip(texts, full_texts, kinds, strict=True)):
        fill, outline = NODE_COLOURS[NodeType(kind)]
        label = full_text if full_text and kind != NodeType.INSTRUCTION else words
        # Constants and types belong to the module, whatever their function field says.
        shared = kind in (NodeType.CONSTANT, NodeType.TYPE) or (node == 0 and full_text is None)
        clusters.setdefault(None if shared or not graph.functions else functions[node], []).append(
            f"{node} [label={_quoted(label)}, tooltip={_quoted(full_text or words)}, "
            f"fillcolor={_quoted(marked.get(node, fill))}, color={_quoted(outline)}];"
        )
    for function, members in clusters.items():
        if function is None:
            lines += [f"  {member}" for member in members]
        else:
            lines.append(f"  subgraph cluster_{function} {{")
            lines.append(f"    label={_quoted(graph.functions[function].name)};")
            lines += [f"    {member}" for member in members]
            lines.append("  }")
    for flow, position, source, target in zip(
        graph.edge_flow.tolist(), graph.edge_position.tolist(), *graph.edges.tolist(), strict=True
    ):
        style = "dashed" if flow == Flow.CALL else "dotted" if flow == Flow.TYPE else "solid"
        lines.append(
            f"  {source} -> {target} [color={_quoted(FLOW_COLOURS[Flow(flow)])}, style={style}, "
            f'label="{position or ""}", tooltip="{Flow(flow).name.lower()} {position}"];'
        )
    return "\n".join([*lines, "}"]) + "\n"


def svg(
    graph: ProgramGraph,
    *,
    highlight: Mapping[int, str] | None = None,
    meaning: Mapping[str, str] | None = None,
    title: str = "",
    limit: int = LIMIT,
) -> str:
    """A picture of the graph.

    Args:
        graph: what to draw.
        highlight: node → CSS colour that fills it, for the nodes to point out.
        meaning: colour → what it stands for, for the legend.
        title: stands above the picture.
        limit: how many nodes to draw at most; a note says what was left out.
    """
    return _drawing(graph, picture_of(graph, limit=limit), highlight or {}, meaning or {}, title)


def html(
    graph: ProgramGraph,
    *,
    highlight: Mapping[int, str] | None = None,
    meaning: Mapping[str, str] | None = None,
    title: str = "",
    limit: int = LIMIT,
) -> str:
    """A page with the picture of `svg` that can be moved, zoomed and searched; it loads nothing."""
    picture = picture_of(graph, limit=limit)
    assets = files("apportion.program") / "assets"
    page = (assets / "graph.html").read_text("utf-8")
    flows = [flow for flow in Flow if flow in graph.edge_flow]
    parts = {
        "TITLE": escape(legal(title or "program graph")),
        "STYLE": (assets / "graph.css").read_text("utf-8"),
        "FLOWS": "".join(
            f'<label style="color:{FLOW_COLOURS[flow]}">'
            f'<input type="checkbox" data-flow="{flow.name.lower()}" checked>{flow.name.lower()}</label>'
            for flow in flows
        ),
        "PICTURE": _drawing(graph, picture, highlight or {}, meaning or {}, title),
        "NODES": _script_json(_details(graph, picture)),
        "SCRIPT": (assets / "graph.js").read_text("utf-8"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)


def _drawing(
    graph: ProgramGraph,
    picture: Picture,
    highlight: Mapping[int, str],
    meaning: Mapping[str, str],
    title: str,
) -> str:
    legend, right = _legend(graph, meaning)
    width, height = round(max(picture.width, right)), round(picture.height + _HEAD)
    parts = [
        element("style", _style()),
        element("defs", *map(_marker, Flow)),
        rect(0, 0, width, height, class_="paper"),
        *_head(graph, picture, title),
        *legend,
        group((f"{part}\n" for part in _body(graph, picture, highlight)), y=_HEAD),
    ]
    return drawing(width, height, parts, label=title or "program graph", font_family=None)


def _head(graph: ProgramGraph, picture: Picture, title: str) -> Iterator[str]:
    """The title, and what was left out."""
    nodes, edges = graph.size
    name = title or (graph.modules[0].name if graph.modules else "program graph")
    yield text(14, 26, name, class_="title")
    counts = f"{nodes:,} nodes, {edges:,} edges. {picture.note}"
    yield text(24 + 9.4 * len(name), 26, counts, class_="note" if picture.note else "count")


def _legend(graph: ProgramGraph, meaning: Mapping[str, str]) -> tuple[list[str], float]:
    """The types and flows that occur and the colours with a meaning, and where they end on the right."""
    found: list[str] = []
    x = 14.0
    for word in (kind.name.lower() for kind in NodeType if kind in graph.node_type):
        found += _swatch(x, word, word, None)
        x += 36 + 7 * len(word)
    for flow in (flow for flow in Flow if flow in graph.edge_flow):
        word = flow.name.lower()
        found.append(
            element("path", class_=f"edge {word}", d=f"M{x:.0f} 44h24", marker_end=f"url(#head-{word})")
        )
        found.append(text(x + 32, 48, f"{word} flow", class_="legend"))
        x += 82 + 7 * len(word)
    for colour, word in meaning.items():
        found += _swatch(x, word, "marked", f"fill:{colour}")
        x += 36 + 7 * len(word)
    return found, x


def _swatch(x: float, word: str, kind: str, style: str | None) -> list[str]:
    return [rect(x, 38, 16, 12, class_=kind, style=style, rx=3), text(x + 22, 48, word, class_="legend")]


def _body(graph: ProgramGraph, picture: Picture, highlight: Mapping[int, str]) -> Iterator[str]:
    for box in picture.boxes:
        yield rect(box.x, box.y, box.width, box.height, class_=box.kind, rx=7)
        line = box.y + (12 if box.kind == "block" else 17)
        yield text(box.x + 9, line, box.title, class_=f"{box.kind}-title")
    flows, positions = graph.edge_flow.tolist(), graph.edge_position.tolist()
    sources, targets = graph.edges.tolist()
    for flow in _BACK_TO_FRONT:
        word = flow.name.lower()
        for route in picture.routes:
            edge = route.edge
            if flows[edge] != flow:
                continue
            outer = " outer" if flow == Flow.CALL and 0 in (sources[edge], targets[edge]) else ""
            yield element(
                "path", class_=f"edge {word}{outer}", data_edge=edge, data_from=sources[edge],
                data_to=targets[edge], d=route.line, marker_end=f"url(#head-{word})",
                tip=f"{word} {positions[edge]}: {sources[edge]} to {targets[edge]}",
            )  # fmt: skip
    kinds, texts, full_texts = graph.node_type.tolist(), graph.texts(), graph.full_texts()
    for shape in picture.shapes:
        word = NodeType(kinds[shape.node]).name.lower()
        tip = f"{shape.node}: {texts[shape.node]}"
        if full_texts[shape.node]:
            tip += f"\n{full_texts[shape.node]}"
        drawn = _drawn(shape, word, highlight.get(shape.node))
        yield element("g", *drawn, class_="node", data_node=shape.node, tip=tip)


def _drawn(shape: Shape, word: str, colour: str | None) -> Iterator[str]:
    yield rect(
        shape.x, shape.y, shape.width, shape.height, class_=f"{word} marked" if colour else word,
        style=f"fill:{colour}" if colour else None, rx=6 if shape.position is None else 10,
    )  # fmt: skip
    if shape.position is not None:
        yield text(shape.x + 8, shape.y + 14, shape.label, class_="small")
        yield text(shape.x - 9, shape.y + 7, shape.position, class_="position")
        return
    yield text(shape.x + 8, shape.y + (16 if shape.detail else 23), shape.label, class_="text")
    if shape.detail:
        yield text(shape.x + 8, shape.y + 29, shape.detail, class_="small")


def _style() -> str:
    rules = [
        "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1b2330}",
        ".marked{stroke:#1b2330}",
        ".paper{fill:#ffffff}.title{font-size:15px;font-weight:bold}.count,.legend{font-size:11px;fill:#4b5565}",
        ".note{font-size:11px;fill:#b42318}.text{font-size:12px;font-weight:bold}.small{font-size:10px}",
        ".position{font-size:8.5px;fill:#8a5a04}",
        ".function{fill:#f6f8fb;stroke:#a9b4c4}.block{fill:#ffffff;stroke:#c9d1dc}",
        ".strip{fill:#f4f7f6;stroke:#b5c4bf}",
        ".function-title,.strip-title{font-size:12px;font-weight:bold;fill:#33415c}",
        ".block-title{font-size:9px;fill:#78849a}.edge{fill:none}.marked{stroke-width:2.5}",
    ]
    for kind, (fill, outline) in NODE_COLOURS.items():
        rules.append(f"rect.{kind.name.lower()}{{fill:{fill};stroke:{outline}}}")
    for flow, (width, dashes) in _FLOW_LINES.items():
        dashed = f";stroke-dasharray:{dashes}" if dashes else ""
        rules.append(f".edge.{flow.name.lower()}{{stroke:{FLOW_COLOURS[flow]};stroke-width:{width}{dashed}}}")
    rules.append(".edge.call{stroke-opacity:.6}.edge.outer{stroke-opacity:.25}.edge.type{stroke-opacity:.5}")
    return "".join(rules)


def _marker(flow: Flow) -> str:
    return element(
        "marker", element("path", d="M0 1L8 4L0 7z", fill=FLOW_COLOURS[flow]), id=f"head-{flow.name.lower()}",
        viewBox="0 0 8 8", refX=7, refY=4, markerWidth=7, markerHeight=7, markerUnits="userSpaceOnUse",
        orient="auto",
    )  # fmt: skip


def _details(graph: ProgramGraph, picture: Picture) -> dict[str, list[object]]:
    """What the page tells about each node it draws: type, text, full text, function, block."""
    kinds, texts, full_texts = graph.node_type.tolist(), graph.texts(), graph.full_texts()
    functions, blocks = graph.node_function.tolist(), graph.node_block.tolist()
    names = [function.name for function in graph.functions] or [""]
    return {
        str(node): [
            NodeType(kinds[node]).name.lower(),
            texts[node],
            full_texts[node],
            names[functions[node]],
            blocks[node],
        ]
        for node in sorted({shape.node for shape in picture.shapes})
    }


def _script_json(value: object) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value).replace("<", "\\u003c")


def _quoted(words: str) -> str:
    """A DOT string."""
    inner = legal(words).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l")
    return f'"{inner}"'
