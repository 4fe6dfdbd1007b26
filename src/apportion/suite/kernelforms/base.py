"""What forms of kernels are made with: drafts, chains of arithmetic, ways of reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from apportion.suite.expressions import Draw, Kind, statements


@dataclass(frozen=True)
class Draft:
    """A kernel that was drawn."""

    form: str
    body: str
    "Of the kernel, between its braces."
    parameters: tuple[str, ...]
    arguments: Mapping[str, str]
    "Parameter → what it is given; see `device.workload`."
    locals: tuple[tuple[int, ...], ...]
    "Work-group sizes that it may be run with."
    work: float
    "Operations of a work-item, roughly; sizes are chosen after it."
    bytes: float
    "Bytes of all arrays per work-item."
    traits: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """OpenCL C."""
        return f"kernel void generated({', '.join(self.parameters)}) {{\n{self.body}\n}}\n"


Form = Callable[[Draw], Draft]
TURNS = "turns_of_"
"The number behind it becomes an argument of the kernel: the compiler does not know how often it loops."
LINE = ((32,), (64,), (128,), (256,))
PLANE = ((8, 8), (16, 4), (16, 16), (32, 4), (32, 8), (64, 2))
SPACE = ((4, 4, 4), (8, 4, 2), (8, 8, 2), (16, 4, 2))


def indented(lines: list[str], depth: int = 1) -> str:
    return "\n".join("    " * depth + line for line in lines)


def chain(draw: Draw, kind: Kind, seeds: list[str]) -> tuple[list[str], float, float]:
    """Arithmetic on `x` and `y`, in a loop or not; its lines, its operations, its part of special
    functions."""
    special = draw.one((0.0, 0.0, 0.1, 0.3, 0.7)) if kind.is_float else 0.0
    if draw.chance(0.45):
        count = draw.scale(1, 48)
        return statements(draw, kind, seeds, count, special), 2.0 * count, special
    count, turns = draw.scale(1, 10), draw.scale(4, 384)
    inner = statements(draw, kind, seeds, count, special)
    bound = f"{TURNS}{turns}" if draw.chance(0.5) else str(turns)
    head = [f"for (int k = 0; k < {bound}; k++) {{", *("    " + line for line in inner), "}"]
    return head, 2.0 * count * turns, special


def beginning(kind: Kind, first: str, second: str) -> list[str]:
    return [f"{kind.name} x = {first};", f"{kind.name} y = {second};"]


def array_of(kind: Kind, count: str, fill: str) -> str:
    length = count if kind.components == 1 else f"{kind.components}*{count}"
    return f"{kind.dtype}[{length}]={fill}"


def two_sizes(draw: Draw) -> tuple[tuple[int, ...], ...]:
    return tuple(draw.some(LINE, 2))


def reading(draw: Draw, name: str) -> tuple[str, str, bool]:
    """An index that stays below n, what kind it is, and whether it needs a table of places."""
    way = draw.one(
        ("straight", "straight", "straight", "reversed", "strided", "strided", "shifted", "gathered")
    )
    if way == "reversed":
        return f"{name}[n - 1 - i]", way, False
    if way == "strided":
        stride = draw.one((2, 3, 7, 16, 17, 33, 64, 129, 1024, 4099))
        return f"{name}[(uint)i * {stride}u % (uint)n]", way, False
    if way == "shifted":
        return f"{name}[(i + {draw.between(1, 64)}) % n]", way, False
    if way == "gathered":
        return f"{name}[places[i]]", way, True
    return f"{name}[i]", way, False


def irregularity(way: str) -> int:
    return ("straight", "shifted", "reversed", "strided", "gathered").index(way)
