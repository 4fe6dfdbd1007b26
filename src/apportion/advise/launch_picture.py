"""The program graph of a source as a picture whose nodes know their line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from apportion.program.compile import CompileOptions, ir_of
from apportion.program.drawing.draw import svg
from apportion.program.graph import NodeType
from apportion.program.kernel.source_lines import SourceLines
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.source import Source

_USUAL = CompileOptions()


@dataclass(frozen=True)
class LaunchPicture:
    """A drawn program graph."""

    svg: str
    lines: dict[int, int]
    "Instruction node → line of the source, where that is known."
    nodes: int
    edges: int
    shown: int

    def as_json(self) -> dict[str, Any]:
        """Nodes as text, because JSON has no other keys."""
        return {
            "svg": self.svg, "nodes": self.nodes, "edges": self.edges, "shown": self.shown,
            "lines": {str(node): line for node, line in self.lines.items()},
        }  # fmt: skip


def launch_picture(
    source: Source, *, function: str | None = None, limit: int = 600, compile: CompileOptions | None = None
) -> LaunchPicture:
    """The program graph of a source, or of one function and what it calls.

    Nodes have the numbers that `apportion graph` and `apportion analyze` give them.

    Args:
        limit: how many nodes are drawn at most.

    Raises:
        UnknownName: no such function.
        MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    options = compile or _USUAL
    building = GraphOptions(function=function)
    graph = graph_of_ir(ir_of(source, options), name=source.name, options=building)
    # Line tables change neither nodes nor their order, only what an instruction prints.
    ir = ir_of(source, replace(options, line_tables=source.language != "llvm"))
    placed = graph_of_ir(ir, name=source.name, options=building)
    places = SourceLines.of(ir, source.name)
    lines = {}
    for node, kind in enumerate(graph.node_type.tolist()):
        if kind == NodeType.INSTRUCTION and (line := places.line_of(placed.full_text(node) or "")):
            lines[node] = line
    nodes, edges = graph.size
    return LaunchPicture(
        svg(graph, title=function or source.name, limit=limit), lines, nodes, edges, min(limit, nodes)
    )
