"""Why a kernel got its share: what each instruction, each input and the program's size added to the answer.

Each tree's answer is taken apart along the path that the row takes through it: a step adds the difference of
two means to the feature that is compared there. A feature's part is shared equally among the nodes that it
was counted on, and a value's part goes to the instruction that makes it, else to those that use it. All parts
and the base together are the predicted share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion.advise.describe import compiled_as, describe
from apportion.advise.predictor import DEFAULT_PAIR, forests_model
from apportion.advise.queries import Query, Size
from apportion.learn.shares.kernel_query import KernelQuery
from apportion.learn.shares.nearest_launches import NEAREST
from apportion.program.compile import ir_of
from apportion.program.drawing.draw import svg
from apportion.program.graph import Flow, NodeType, ProgramGraph
from apportion.program.kernel.features import FEATURES, INPUTS, RANGE_INPUTS, nodes_of
from apportion.program.kernel.instructions import read_module
from apportion.program.kernel.source_lines import SourceLines
from apportion.program.siblings import own_lines
from apportion.program.source import Source

WHOLE = "the program as a whole"
TO_CPU = ("#fbe3d6", "#f4a582", "#d6604d")
TO_GPU = ("#b5d7ea", "#7ab3d6", "#3a86bd")
"Weak, middling and strong; the weak ones still unlike instructions that added nothing."


@dataclass(frozen=True, eq=False)
class Line:
    """An instruction, and what it added to the CPU's share, in percent of the work."""

    node: int
    function: str
    text: str
    added: float
    line: int = 0
    "Of the source; 0 where the compiler ascribes the instruction to none."


@dataclass(frozen=True, eq=False)
class Explanation:
    """The parts of an answer, in percent of the work; `base` and all parts together are the share."""

    name: str
    pair: str
    base: float
    "What the trees that make the answer say before they look."
    lines: tuple[Line, ...]
    "Every instruction, in the program's order."
    inputs: Mapping[str, float]
    "Input → what it added."
    nearest_launches: Mapping[str, float]
    "What known launches that are near did → what it added."
    whole: Mapping[str, float]
    "Feature of the program as a whole → what it added."
    absent: Mapping[str, float]
    "Feature that the kernel has nothing of → what its absence added."
    graph: ProgramGraph
    warnings: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    "The lines of the source, where its instructions are known to come from some."

    @property
    def source_lines(self) -> list[tuple[int, str, float]]:
        """Lines of the source by how much their instructions moved the answer: number, text, percent."""
        added: dict[int, float] = defaultdict(float)
        for line in self.lines:
            added[line.line] += line.added
        return sorted(
            ((number, self._text_of(number), value) for number, value in added.items()),
            key=lambda each: -abs(each[2]),
        )

    def _text_of(self, number: int) -> str:
        return (
            self.source[number - 1].strip() if 0 < number <= len(self.source) else "(no line of the source)"
        )

    @property
    def share(self) -> float:
        """The CPU's share, in percent."""
        parts = (self.inputs, self.nearest_launches, self.whole, self.absent)
        return self.base + sum(line.added for line in self.lines) + sum(sum(p.values()) for p in parts)

    @property
    def strongest(self) -> list[Line]:
        """Instructions by how much they moved the answer, in either direction."""
        return sorted(self.lines, key=lambda line: -abs(line.added))

    def as_json(self) -> dict[str, Any]:
        """What `apportion explain --json` prints."""
        return {
            "kernel": self.name,
            "pair": self.pair,
            "cpu_share": round(self.share / 100, 4),
            "base": round(self.base / 100, 6),
            "inputs": _rounded(self.inputs),
            "nearest_launches": _rounded(self.nearest_launches),
            "whole": _rounded(self.whole),
            "absent": _rounded(self.absent),
            "instructions": [
                {
                    "node": line.node,
                    "function": line.function,
                    "text": line.text,
                    "added": round(line.added / 100, 6),
                    "line": line.line,
                }
                for line in self.lines
            ],
            "lines": [
                {"line": number, "text": text, "added": round(value / 100, 6)}
                for number, text, value in (self.source_lines if self.source else ())
            ],
        }

    def picture(self, *, limit: int = 1500) -> str:
        """The program graph as SVG, its instructions coloured by what they added."""
        most = max((abs(line.added) for line in self.lines), default=0.0) or 1.0
        colours = {}
        for line in self.lines:
            part = abs(line.added) / most
            if part >= 0.05:
                colours[line.node] = (TO_CPU if line.added > 0 else TO_GPU)[min(2, int(3 * part))]
        meaning = {TO_CPU[2]: "towards the CPU", TO_GPU[2]: "towards the GPU"}
        title = f"{self.name}: {self.share:.0f} % for the CPU ({self.pair})"
        return svg(self.graph, highlight=colours, meaning=meaning, title=title, limit=limit)


def explain(
    source: Source | Path | str,
    *,
    local_size: Size,
    bytes: int,
    kernel: str | None = None,
    global_size: Size | None = None,
    pair: str = DEFAULT_PAIR,
    model: str | Path | None = None,
) -> Explanation:
    """What moved the answer that `predict` gives for the same arguments; it raises what that raises."""
    if not isinstance(source, Source):
        source = Source.read(source)
    query = Query(source, local_size, bytes, kernel, global_size)
    predictor = forests_model("load-balance", pair, model)
    described = describe(source, kernel=kernel, vectorized=predictor.vectorized)
    asked = KernelQuery(described.graph, query.bytes, query.group_items, query.work_items, described.code)
    row = described.code
    base, added = predictor.attributed(asked)
    graph = described.graph
    carriers = nodes_of(graph)
    nodes: dict[int, float] = defaultdict(float)
    whole: dict[str, float] = {}
    absent: dict[str, float] = {}
    homes = _homes(graph)
    for number, name in enumerate(FEATURES):
        if not added.get(name):
            continue
        carried = [node for node in carriers.get(name, ()) if homes[node]]
        if not carried:
            (whole if row[number] else absent)[name] = added[name]
            continue
        for node in carried:
            for instruction in homes[node]:
                nodes[instruction] += added[name] / len(carried) / len(homes[node])
    places = _places(source, graph, vectorized=predictor.vectorized) if described.declared is None else {}
    lines = tuple(
        Line(
            node,
            graph.functions[graph.node_function[node]].name,
            _text(graph, node),
            nodes[node],
            places.get(node, 0),
        )
        for node in np.flatnonzero(graph.node_type == NodeType.INSTRUCTION).tolist()
        if node in nodes
    )
    inputs = {name: added[name] for name in (*INPUTS, *RANGE_INPUTS) if name in added}
    nearest_launches = {name: added[name] for name in NEAREST if added.get(name)}
    return Explanation(
        described.name,
        predictor.name,
        base,
        lines,
        inputs,
        nearest_launches,
        whole,
        absent,
        graph,
        described.warnings,
        own_lines(str(source.text), source.name) if any(places.values()) else (),
    )


def _places(source: Source, graph: ProgramGraph, *, vectorized: bool) -> dict[int, int]:
    """Instruction → line of the source: those of the same code, compiled once more with debug locations."""
    if source.language in ("llvm", "bitcode", "spirv"):
        return {}
    options = compiled_as(source, vectorized=vectorized)
    ir = ir_of(source, replace(options, line_tables=True))
    lines = SourceLines.of(ir, source.name)
    functions = read_module(ir).functions
    nodes: dict[str, list[int]] = defaultdict(list)
    for node in np.flatnonzero(graph.node_type == NodeType.INSTRUCTION).tolist():
        if graph.full_text(node) is not None:  # the root stands for no instruction
            nodes[graph.functions[graph.node_function[node]].name].append(node)
    found: dict[int, int] = {}
    for name, mine in nodes.items():
        written = functions[name].instructions if name in functions else ()
        if len(written) == len(mine):
            found |= {node: lines.line_of(each.text) for node, each in zip(mine, written, strict=True)}
    return found


def _homes(graph: ProgramGraph) -> list[list[int]]:
    """Node → the instructions it belongs to: itself, the one that makes it, or those that use it."""
    instruction = (graph.node_type == NodeType.INSTRUCTION).tolist()
    makers: dict[int, list[int]] = defaultdict(list)
    users: dict[int, list[int]] = defaultdict(list)
    source, target = graph.edges_of(Flow.DATA)
    for head, tail in zip(source.tolist(), target.tolist(), strict=True):
        if instruction[head]:
            makers[tail].append(head)
        if instruction[tail]:
            users[head].append(tail)
    return [
        [node] if itself else makers.get(node) or users.get(node) or []
        for node, itself in enumerate(instruction)
    ]


def _text(graph: ProgramGraph, node: int) -> str:
    return " ".join((graph.full_text(node) or graph.text(node)).split())


def _rounded(parts: Mapping[str, float]) -> dict[str, float]:
    ordered = sorted(parts.items(), key=lambda item: -abs(item[1]))
    return {name: round(value / 100, 6) for name, value in ordered}
