"""Picture: where the nodes and edges of a program graph stand on a page.

Each function is a panel; inside it the basic blocks stand in rows along the control flow. A block is a column
of instructions, top to bottom, and beside each instruction stand its operands in order. A node with several
uses (a constant, an argument) is drawn beside each of them, so that no edge has to cross the page for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apportion.errors import InvalidSetting
from apportion.program.drawing.layering import Layers, Point, arrange
from apportion.program.graph import Flow, NodeType, ProgramGraph

DECLARED = "; undefined function"
"The text of the one node of a function without a body."

_INSTRUCTION_HEIGHT, _CHIP_HEIGHT = 36.0, 20.0
_INSTRUCTION_WIDTHS = (110.0, 270.0)
_CHIP_WIDTHS = (46.0, 190.0)
_LETTER, _SMALL_LETTER = 7.6, 6.1  # widths of a letter in the first and in the second line of a label
_CHANNEL = 34.0  # between instructions and operands
_ROW_GAP, _CHIP_GAP = 14.0, 5.0
_LANE = 7.0  # between parallel lines
_PADDING, _TITLE = 14.0, 24.0
_BLOCK_GAP_X, _BLOCK_GAP_Y, _PANEL_GAP = 46.0, 54.0, 56.0
_PAGE_WIDTHS = (820.0, 1600.0)  # grows beyond the second only for a single function that is wider


@dataclass(frozen=True)
class Shape:
    """A node at one of the places where it is drawn."""

    node: int
    x: float
    y: float
    width: float
    height: float
    label: str
    detail: str = ""
    "The second line of the label."
    beside: int | None = None
    "The instruction that uses it here, for an operand."
    position: int | None = None
    "Which operand it is."

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True)
class Box:
    """A frame with a title: a function, a block, or a strip of nodes."""

    kind: str
    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Route:
    """The line of an edge, as the contents of an SVG path's `d`."""

    edge: int
    line: str


@dataclass(frozen=True)
class Picture:
    """Everything that is drawn, with its place."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    shapes: tuple[Shape, ...]
    routes: tuple[Route, ...]
    note: str
    "What was left out, in words; empty when nothing was."


def picture_of(graph: ProgramGraph, *, limit: int = 1500) -> Picture:
    """The graph laid out on a page.

    Args:
        graph: what to draw.
        limit: at most so many instructions and operands are drawn: whole functions in their order while they
            fit, and the beginning of the first function where none does.

    Raises:
        InvalidSetting: the limit is less than 1.
    """
    if limit < 1:
        raise InvalidSetting(f"The limit of nodes in a picture must be at least 1, not {limit}")
    program = _Program(graph)
    page = _Page(program, _chosen(program, limit))
    return page.picture()


class _Program:
    """The graph as lists, with the operands of each instruction: what the layout asks for all the time."""

    def __init__(self, graph: ProgramGraph) -> None:
        self.graph = graph
        self.kinds: list[int] = graph.node_type.tolist()
        self.texts, self.full_texts = graph.texts(), graph.full_texts()
        self.functions: list[int] = graph.node_function.tolist()
        self.blocks: list[int] = graph.node_block.tolist()
        self.flows: list[int] = graph.edge_flow.tolist()
        self.positions: list[int] = graph.edge_position.tolist()
        self.sources: list[int] = graph.edges[0].tolist()
        self.targets: list[int] = graph.edges[1].tolist()
        self.instructions: list[int] = np.flatnonzero(graph.node_type == NodeType.INSTRUCTION).tolist()
        self.operands: defaultdict[int, list[int]] = defaultdict(list)
        "Instruction → its data edges from operands, in the order of their positions."
        self.results: defaultdict[int, list[int]] = defaultdict(list)
        "Instruction → the nodes that hold what it computes."
        self.successors: defaultdict[int, list[int]] = defaultdict(list)
        "Instruction → those that may follow it."
        for edge, (flow, source, target) in enumerate(
            zip(self.flows, self.sources, self.targets, strict=True)
        ):
            if flow == Flow.CONTROL:
                self.successors[source].append(target)
            elif flow == Flow.DATA and self.kinds[source] == NodeType.INSTRUCTION:
                self.results[source].append(target)
            elif flow == Flow.DATA and self.kinds[target] == NodeType.INSTRUCTION:
                self.operands[target].append(edge)
        for edges in self.operands.values():
            edges.sort(key=self.positions.__getitem__)

    def outside(self, node: int) -> bool:
        """Whether a node belongs to no block: the root, or a function without a body."""
        return self.texts[node] == DECLARED or (node == 0 and self.full_texts[0] is None)

    def function_name(self, node: int) -> str:
        functions = self.graph.functions
        return functions[self.functions[node]].name if functions else "program"

    def label(self, node: int) -> str:
        return self.function_name(node) if self.texts[node] == DECLARED else self.texts[node]

    def detail(self, node: int) -> str:
        if self.texts[node] == DECLARED:
            return "declared, no body"
        return " ".join((self.full_texts[node] or "").split())

    def operand_label(self, node: int) -> str:
        return " ".join((self.full_texts[node] or self.texts[node]).split())


class _Block:
    """One basic block: its size, and the lanes in which results run down its right side."""

    def __init__(self, program: _Program, number: int, members: Sequence[int]) -> None:
        self.program, self.number, self.members = program, number, members
        operands = [program.sources[edge] for node in members for edge in program.operands[node]]
        self.instruction_width = max(_instruction_width(program, node) for node in members)
        self.operand_width = max((_operand_width(program, node) for node in operands), default=0.0)
        self.heights = [self._row_height(node) for node in members]
        self.lanes = self._lanes()
        gutter = _LANE * (max(self.lanes.values(), default=0) + 2) if operands else 0.0
        self.right = _PADDING + self.instruction_width + (_CHANNEL + self.operand_width if operands else 0.0)
        height = sum(self.heights) + _ROW_GAP * (len(members) - 1)
        self.size: Point = (self.right + gutter + _PADDING, height + 2 * _PADDING + 8)

    def _row_height(self, node: int) -> float:
        count = len(self.program.operands[node])
        return max(_INSTRUCTION_HEIGHT, count * (_CHIP_HEIGHT + _CHIP_GAP) - _CHIP_GAP)

    def _lanes(self) -> dict[int, int]:
        """Producer → its lane; two producers share one where the first has no use left below the second."""
        rows = {node: row for row, node in enumerate(self.members)}
        uses: defaultdict[int, int] = defaultdict(int)  # operand → the last row that uses it
        for row, node in enumerate(self.members):
            for edge in self.program.operands[node]:
                uses[self.program.sources[edge]] = row
        last = {
            node: max((uses[result] for result in self.program.results[node]), default=0) for node in rows
        }
        free_from: list[int] = []
        lanes = {}
        for source in self.members:
            if last[source] <= rows[source]:
                continue
            lane = next((i for i, row in enumerate(free_from) if row <= rows[source]), len(free_from))
            free_from[lane : lane + 1] = [last[source]]
            lanes[source] = lane
        return lanes


class _Panel:
    """One function: its blocks in layers."""

    def __init__(self, program: _Program, nodes: Sequence[int]) -> None:
        members: defaultdict[int, list[int]] = defaultdict(list)
        for node in nodes:
            members[program.blocks[node]].append(node)
        self.title = _cut(program.function_name(nodes[0]), 60)
        self.blocks = [_Block(program, number, block) for number, block in members.items()]
        owner = {node: at for at, block in enumerate(self.blocks) for node in block.members}
        edges = [
            (owner[source], owner[target])
            for source in nodes
            for target in program.successors[source]
            if target in owner and not (owner[source] == owner[target] and source < target)
        ]  # fmt: skip
        self.layers: Layers = arrange(
            [block.size for block in self.blocks], edges, gap_x=_BLOCK_GAP_X, gap_y=_BLOCK_GAP_Y
        )
        self.loop_room = _LANE * (sum(edge in self.layers.back for edge in edges) + 1)
        self.width = max(self.layers.width + self.loop_room, _LETTER * len(self.title)) + 2 * _PADDING
        self.height = self.layers.height + _TITLE + 2 * _PADDING + 24


class _Page:
    """The picture while it is being made."""

    def __init__(self, program: _Program, chosen: Sequence[int]) -> None:
        self.program, self.chosen = program, chosen
        self.boxes: list[Box] = []
        self.shapes: list[Shape] = []
        self.routes: list[Route] = []
        self.copies: defaultdict[int, list[Shape]] = defaultdict(list)
        self.home: dict[int, tuple[_Panel, int, Point]] = {}
        "Instruction → its panel, the place of its block in it, and the panel's origin."
        self.exits: dict[int, Point] = {}
        "Instruction → where its results leave: the right side of the operands, and the gap under its row."
        self.loops: defaultdict[int, int] = defaultdict(int)

    def picture(self) -> Picture:
        height = self._place()
        self._connect()
        return Picture(
            self.width, height, tuple(self.boxes), tuple(self.shapes), tuple(self.routes), self._note()
        )

    def _note(self) -> str:
        program = self.program
        left = program.graph.nodes - len(self.copies)
        if len(self.chosen) == len(program.instructions) and not left:
            return ""
        drawn = len({program.functions[node] for node in self.chosen})
        return (
            f"Drawn: {len(self.copies):,} of {program.graph.nodes:,} nodes, "
            f"{drawn:,} of {max(len(program.graph.functions), 1):,} functions. "
            "Choose one function, or raise the limit, to see others."
        )

    # Places

    def _place(self) -> float:
        """Give every node its place, from the top down; the height of the page."""
        program = self.program
        outside = [node for node in self.chosen if program.outside(node)]
        bodies: defaultdict[int, list[int]] = defaultdict(list)
        for node in self.chosen:
            if not program.outside(node):
                bodies[program.functions[node]].append(node)
        panels = [_Panel(program, nodes) for nodes in bodies.values()]
        in_one_row = sum(panel.width + _PANEL_GAP for panel in panels) - _PANEL_GAP + 2 * _PADDING
        widest = max((panel.width + 2 * _PADDING for panel in panels), default=0.0)
        self.width = max(_PAGE_WIDTHS[0], widest, min(in_one_row, _PAGE_WIDTHS[1]))
        y = _PADDING
        if outside:
            y = self._strip("root and declared functions", outside, y)
        y = self._shelves(panels, y)
        if len(self.chosen) == len(program.instructions):
            types = [node for node, kind in enumerate(program.kinds) if kind == NodeType.TYPE]
            if types:
                y = self._strip("types", types, y)
            loose = [node for node in range(program.graph.nodes) if node not in self.copies]
            if loose:
                y = self._strip("used by no instruction", loose, y)
        return y - _PANEL_GAP + _PADDING

    def _strip(self, title: str, nodes: Sequence[int], y: float) -> float:
        """Nodes side by side in a frame over the whole width; the y below it."""
        x, row = 2 * _PADDING, y + _TITLE + 6
        shapes = []
        for node in nodes:
            width = _instruction_width(self.program, node)
            if x > 2 * _PADDING and x + width > self.width - 2 * _PADDING:
                x, row = 2 * _PADDING, row + _INSTRUCTION_HEIGHT + 12
            shapes.append(self._instruction(node, x, row, width))
            x += width + 16
        bottom = row + _INSTRUCTION_HEIGHT + _PADDING
        self.boxes.append(Box("strip", title, _PADDING, y, self.width - 2 * _PADDING, bottom - y))
        return bottom + _PANEL_GAP

    def _shelves(self, panels: Sequence[_Panel], y: float) -> float:
        """Functions side by side while they fit, then on the next shelf; the y below the last."""
        x, tallest = _PADDING, 0.0
        for panel in panels:
            if x > _PADDING and x + panel.width > self.width - _PADDING:
                x, y, tallest = _PADDING, y + tallest + _PANEL_GAP, 0.0
            self.boxes.append(Box("function", panel.title, x, y, panel.width, panel.height))
            origin = (x + _PADDING + panel.loop_room, y + _TITLE + _PADDING + 12)
            for at, block in enumerate(panel.blocks):
                corner = panel.layers.corners[at]
                self._block(block, origin[0] + corner[0], origin[1] + corner[1])
                self.home.update(dict.fromkeys(block.members, (panel, at, origin)))
            x += panel.width + _PANEL_GAP
            tallest = max(tallest, panel.height)
        return y + tallest + _PANEL_GAP if panels else y

    def _block(self, block: _Block, x: float, y: float) -> None:
        self.boxes.append(Box("block", f"block {block.number}", x, y, *block.size))
        operand_x = x + _PADDING + block.instruction_width + _CHANNEL
        row = y + _PADDING + 8
        for node, height in zip(block.members, block.heights, strict=True):
            middle = row + height / 2
            shape = self._instruction(
                node, x + _PADDING, middle - _INSTRUCTION_HEIGHT / 2, block.instruction_width
            )
            self.exits[node] = (x + block.right, row + height + _ROW_GAP / 2)
            edges = self.program.operands[node]
            at = middle - (len(edges) * (_CHIP_HEIGHT + _CHIP_GAP) - _CHIP_GAP) / 2
            for edge in edges:
                chip = self._operand(edge, operand_x, at)
                start = (chip.x, at + _CHIP_HEIGHT / 2)
                end = (shape.right, min(max(start[1], shape.y + 8), shape.bottom - 8))
                self._line(edge, f"M{_at(start)}{_sideways(start, end)}")
                at += _CHIP_HEIGHT + _CHIP_GAP
            row += height + _ROW_GAP

    def _instruction(self, node: int, x: float, y: float, width: float) -> Shape:
        label = _cut(self.program.label(node), int((width - 12) / _LETTER))
        detail = _cut(self.program.detail(node), int((width - 12) / _SMALL_LETTER))
        return self._add(Shape(node, x, y, width, _INSTRUCTION_HEIGHT, label, detail))

    def _operand(self, edge: int, x: float, y: float) -> Shape:
        node = self.program.sources[edge]
        width = _operand_width(self.program, node)
        label, room = self.program.operand_label(node), int((width - 10) / _SMALL_LETTER)
        # A variable's name stands at its end; a constant is told by its beginning.
        short = (
            _cut_front(label, room) if self.program.kinds[node] == NodeType.VARIABLE else _cut(label, room)
        )
        beside, position = self.program.targets[edge], self.program.positions[edge]
        return self._add(Shape(node, x, y, width, _CHIP_HEIGHT, short, beside=beside, position=position))

    def _add(self, shape: Shape) -> Shape:
        self.shapes.append(shape)
        self.copies[shape.node].append(shape)
        return shape

    # Lines

    def _connect(self) -> None:
        """Draw the edges whose two ends are on the page; those from operands are there already."""
        program = self.program
        drawn = {route.edge for route in self.routes}
        for edge, (source, target) in enumerate(zip(program.sources, program.targets, strict=True)):
            if edge in drawn or source not in self.copies or target not in self.copies:
                continue
            start, flow = self.copies[source][0], program.flows[edge]
            for end in self.copies[target]:
                if flow == Flow.CONTROL and source in self.home and target in self.home:
                    self._control(edge, start, end)
                elif flow == Flow.CALL:
                    self._call(edge, start, end)
                elif flow == Flow.DATA and source in self.home:
                    self._result(edge, start, end)
                else:
                    self._plain(edge, start, end)

    def _control(self, edge: int, start: Shape, end: Shape) -> None:
        """Straight down inside a block; between rows of blocks otherwise; around the left side in a loop."""
        (panel, first, origin), (other, second, _) = self.home[start.node], self.home[end.node]
        if panel is other and first == second and start.y < end.y:
            self._line(edge, f"M{start.middle:.1f} {start.bottom:.1f}L{end.middle:.1f} {end.y:.1f}")
            return
        if panel is not other:
            self._plain(edge, start, end)
            return
        shift = 9.0 * min(self.program.positions[edge], 6)  # the successors of a branch leave side by side
        leave, arrive = (start.middle + shift, start.bottom), (end.middle + shift / 2, end.y)
        floor = origin[1] + panel.layers.bands[first][1]
        if (first, second) in panel.layers.back:
            loop = self.loops[id(panel)]
            self.loops[id(panel)] += 1
            lane = origin[0] - _LANE * (loop + 1)
            below = floor + 10 + _LANE * (loop % 3)
            above = origin[1] + panel.layers.bands[second][0] - 10 - _LANE * (loop % 3)
            arrive = (end.middle - 12, end.y)
            corners = [leave, (leave[0], below), (lane, below), (lane, above), (arrive[0], above), arrive]
            self._line(edge, _rounded(corners))
            return
        passed = [(origin[0] + x, origin[1] + y) for x, y in panel.layers.paths[first, second]]
        ceiling = origin[1] + panel.layers.bands[second][0]
        line = f"M{_at(leave)}L{leave[0]:.1f} {floor:.1f}"
        here = (leave[0], floor)
        for number, point in enumerate([*passed, (arrive[0], ceiling)]):
            line += (
                f"L{_at(point)}" if number % 2 else _down(here, point)
            )  # odd: through a row, even: between
            here = point
        self._line(edge, f"{line}L{_at(arrive)}")

    def _result(self, edge: int, start: Shape, end: Shape) -> None:
        """From an instruction through the gap under its row, to the right side of the operand."""
        side, gap = self.exits[start.node]
        leave, arrive = (start.right - 10, start.bottom), (end.right, end.y + end.height / 2)
        panel, at, _ = self.home[start.node]
        neighbour = self.home.get(end.beside) if end.beside is not None else None
        if neighbour is not None and neighbour[:2] == (panel, at) and end.y > gap:
            lane = side + _LANE * (panel.blocks[at].lanes[start.node] + 1)
            self._line(edge, _rounded([leave, (leave[0], gap), (lane, gap), (lane, arrive[1]), arrive]))
            return
        reach = min(50 + abs(arrive[1] - gap) * 0.12, 160)
        self._line(
            edge,
            _rounded([leave, (leave[0], gap), (side, gap)])
            + f"C{side + reach:.1f} {gap:.1f} {arrive[0] + reach:.1f} {arrive[1]:.1f} {_at(arrive)}",
        )

    def _call(self, edge: int, start: Shape, end: Shape) -> None:
        """Between the left side of the lower node and the foot of the upper one."""
        if start.bottom < end.y:
            leave, arrive = (start.middle - 8, start.bottom), (end.x, end.y + 12)
            bends = ((leave[0], leave[1] + 50), (arrive[0] - 60, arrive[1]))
        else:
            leave, arrive = (start.x, start.bottom - 12), (end.middle + 8, end.bottom)
            bends = ((leave[0] - 60, leave[1]), (arrive[0], arrive[1] + 50))
        self._line(edge, f"M{_at(leave)}C{_at(bends[0])} {_at(bends[1])} {_at(arrive)}")

    def _plain(self, edge: int, start: Shape, end: Shape) -> None:
        downwards = start.y <= end.y
        leave = (start.middle, start.bottom if downwards else start.y)
        arrive = (end.middle, end.y if downwards else end.bottom)
        self._line(edge, f"M{_at(leave)}{_down(leave, arrive)}")

    def _line(self, edge: int, line: str) -> None:
        self.routes.append(Route(edge, line))


def _chosen(program: _Program, limit: int) -> list[int]:
    """The instructions to draw."""
    weight = {node: 1 + len(program.operands[node]) for node in program.instructions}
    if sum(weight.values()) <= limit:
        return program.instructions
    units: dict[tuple[int, ...], list[int]] = {}
    for node in program.instructions:
        if not program.outside(node):
            units.setdefault((program.functions[node],), []).append(node)
    kept: set[int] = set()
    room = limit
    for nodes in units.values():
        size = sum(weight[node] for node in nodes)
        if size <= room:
            kept.update(nodes)
            room -= size
    if not kept and units:
        for node in next(iter(units.values())):
            if weight[node] > room:
                break
            kept.add(node)
            room -= weight[node]
    # Of the functions without a body, those that something drawn calls.
    for flow, source, target in zip(program.flows, program.sources, program.targets, strict=True):
        if flow == Flow.CALL and source in kept and program.outside(target):
            kept.add(target)
    return sorted(kept)


def _instruction_width(program: _Program, node: int) -> float:
    wanted = max(_LETTER * len(program.label(node)), _SMALL_LETTER * len(program.detail(node))) + 18
    return min(max(wanted, _INSTRUCTION_WIDTHS[0]), _INSTRUCTION_WIDTHS[1])


def _operand_width(program: _Program, node: int) -> float:
    wanted = _SMALL_LETTER * len(program.operand_label(node)) + 16
    return min(max(wanted, _CHIP_WIDTHS[0]), _CHIP_WIDTHS[1])


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def _cut_front(text: str, room: int) -> str:
    return text if len(text) <= room else "…" + text[len(text) - max(room - 1, 0) :]


def _at(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def _down(start: Point, end: Point) -> str:
    """A curve that leaves and arrives vertically."""
    middle = (start[1] + end[1]) / 2
    return f"C{start[0]:.1f} {middle:.1f} {end[0]:.1f} {middle:.1f} {_at(end)}"


def _sideways(start: Point, end: Point) -> str:
    """A curve that leaves and arrives horizontally."""
    middle = (start[0] + end[0]) / 2
    return f"C{middle:.1f} {start[1]:.1f} {middle:.1f} {end[1]:.1f} {_at(end)}"


def _rounded(points: Sequence[Point], radius: float = 5.0) -> str:
    """Straight lines through these points with rounded corners."""
    line = f"M{_at(points[0])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near, far = _towards(corner, before, radius), _towards(corner, after, radius)
        line += f"L{_at(near)}Q{_at(corner)} {_at(far)}"
    return f"{line}L{_at(points[-1])}"


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = float(np.hypot(end[0] - start[0], end[1] - start[1]))
    part = min(distance / length, 0.5) if length else 0.0
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part
