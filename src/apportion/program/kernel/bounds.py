"""How far a kernel's memory accesses reach: index expressions, and their intervals for a range of
work-groups.

An index is a short straight-line program over work-item ids, scalar arguments and loop counters. When a
launch is known (its sizes and the values of its scalar arguments), interval arithmetic gives the bytes that
any range of work-groups can touch. An interval may be too wide, never too narrow; None means that it is not
known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from apportion.errors import InvalidSetting

Interval = tuple[int, int]


def sizes_of(text: str, name: str = "size") -> tuple[int, ...]:
    """The work-items of each dimension: `1024`, `1024x64` or `1024,64`.

    Raises:
        InvalidSetting: the text is neither.
    """
    try:
        sizes = tuple(int(part) for part in re.split(r"[x×,]", text.strip()))
    except ValueError:
        raise InvalidSetting(f"{name} must be written like 1024 or 1024x64, not {text!r:.60}") from None
    if len(sizes) > 3:
        raise InvalidSetting(f"{name} has one to three dimensions, not {len(sizes)}: {text!r}")
    return sizes


def sizes_in_words(sizes: Iterable[int]) -> str:
    """The same, the other way round."""
    return "x".join(map(str, sizes))


MOST_ITEMS = (1 << 63) - 1
"Of a range; also what a size written in words may come to."


@dataclass(frozen=True)
class NDRange:
    """The index space of a launch: work-items per dimension, in whole work-groups."""

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    offset: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.global_size) <= 3 or len(self.global_size) != len(self.local_size):
            raise InvalidSetting(
                f"A range has one to three dimensions, the same for both sizes, not "
                f"{sizes_in_words(self.global_size)} and {sizes_in_words(self.local_size)}"
            )
        if min(*self.global_size, *self.local_size) < 1:
            raise InvalidSetting(
                f"Work-items of a range and of a work-group must be at least 1, not "
                f"{sizes_in_words(self.global_size)} and {sizes_in_words(self.local_size)}"
            )
        if math.prod(self.global_size) > MOST_ITEMS:
            raise InvalidSetting(f"A range has at most {MOST_ITEMS:,} work-items: no device counts further")
        for size, local in zip(self.global_size, self.local_size, strict=True):
            if local < 1 or size < 1 or size % local:
                raise InvalidSetting(
                    f"The global size {sizes_in_words(self.global_size)} is not made of whole work-groups of "
                    f"{sizes_in_words(self.local_size)}; "
                    "round it up, or choose a local size that divides it"
                )
        if not self.offset:
            object.__setattr__(self, "offset", (0,) * len(self.global_size))
        elif len(self.offset) != len(self.global_size) or min(self.offset) < 0:
            raise InvalidSetting(
                f"The offset {self.offset} must have one number, not negative, per dimension"
            )

    @property
    def dimensions(self) -> int:
        """1, 2 or 3."""
        return len(self.global_size)

    @property
    def groups(self) -> tuple[int, ...]:
        """Work-groups per dimension."""
        return tuple(size // local for size, local in zip(self.global_size, self.local_size, strict=True))

    @property
    def in_words(self) -> tuple[str, str]:
        """`1024x64` and `16x4`: the work-items of every dimension, and those of a group."""
        return sizes_in_words(self.global_size), sizes_in_words(self.local_size)

    @property
    def work_items(self) -> int:
        """Work-items in all."""
        total = 1
        for size in self.global_size:
            total *= size
        return total


class IndexStep(NamedTuple):
    """One step of an index program: an operation on earlier steps."""

    operation: str
    operands: tuple[int, ...] = ()
    value: int = 0
    "A constant, a dimension, the number of an argument, or the bits of a type."


@dataclass(frozen=True)
class IndexProgram:
    """The index arithmetic of a kernel; every step refers only to earlier ones."""

    steps: tuple[IndexStep, ...]

    def intervals(
        self,
        span: NDRange,
        dimension: int,
        first: int,
        last: int,
        scalars: Mapping[int, int],
        wanted: tuple[int, ...] | None = None,
    ) -> dict[int, Interval | None]:
        """The interval of every step, or of those that are wanted and what they need, for the work-groups
        [first, last) along `dimension`.

        Args:
            scalars: argument number → value, for integer arguments passed by value.
        """
        groups = [(0, count - 1) for count in span.groups]
        groups[dimension] = (first, last - 1)
        found: dict[int, Interval | None] = {}
        for number in range(len(self.steps)) if wanted is None else self._needed(wanted):
            step = self.steps[number]
            operands = [found[i] for i in step.operands]
            found[number] = _evaluate(step, operands, span, groups, scalars)
        return found

    def _needed(self, wanted: tuple[int, ...]) -> list[int]:
        """What steps take to be worked out, in order; a launch with a new cut asks for a few of many."""
        known = self._orders
        if wanted not in known:
            there: set[int] = set()
            left = list(wanted)
            while left:
                if (number := left.pop()) not in there:
                    there.add(number)
                    left += self.steps[number].operands
            known[wanted] = sorted(there)
        return known[wanted]

    @cached_property
    def _orders(self) -> dict[tuple[int, ...], list[int]]:
        return {}

    def __getstate__(self) -> tuple[tuple[object, ...], ...]:
        # A plan with a new cut goes to another process while somebody waits: plain values do so quicker.
        return tuple(tuple(step) for step in self.steps)

    def __setstate__(self, steps: tuple[tuple[str, tuple[int, ...], int], ...]) -> None:
        object.__setattr__(self, "steps", tuple(IndexStep(*step) for step in steps))


@dataclass(frozen=True)
class Reach:
    """One access: it touches `width` bytes from the offset that step `offset` computes."""

    offset: int
    width: int


def bytes_touched(
    program: IndexProgram,
    reaches: tuple[Reach, ...] | None,
    span: NDRange,
    dimension: int,
    groups: Interval,
    scalars: Mapping[int, int],
    size: int,
) -> Interval | None:
    """The bytes [start, end) of an array of `size` bytes that a range of work-groups can touch, if known."""
    if reaches is None:
        return None
    if groups[1] <= groups[0] or not reaches:
        return 0, 0
    wanted = tuple(reach.offset for reach in reaches)
    found = program.intervals(span, dimension, groups[0], groups[1], scalars, wanted)
    start, end = size, 0
    for reach in reaches:
        interval = found[reach.offset]
        if interval is None:
            return None
        start, end = min(start, interval[0]), max(end, interval[1] + reach.width)
    # Work-items beyond the array are kept out by the kernel's own guard, or it would write out of bounds.
    start, end = max(start, 0), min(end, size)
    return (start, end) if start < end else (0, 0)


def _evaluate(
    step: IndexStep,
    operands: list[Interval | None],
    span: NDRange,
    groups: list[Interval],
    scalars: Mapping[int, int],
) -> Interval | None:
    match step.operation:
        case "constant":
            return step.value, step.value
        case "argument":
            value = scalars.get(step.value)
            return None if value is None else (value, value)
        case _ if step.operation in _QUERIES:
            return _query(step.operation, step.value, span, groups)
    known = [interval for interval in operands if interval is not None]
    if len(known) != len(operands):
        return _partly_known(step, operands)
    return _arithmetic(step, known)


_QUERIES = {
    "global id", "group id", "local id", "global size", "local size", "group count", "global offset",
}  # fmt: skip


def _query(operation: str, dimension: int, span: NDRange, groups: list[Interval]) -> Interval:
    if dimension >= span.dimensions:
        one = operation in ("global size", "local size", "group count")
        return (1, 1) if one else (0, 0)
    local, offset = span.local_size[dimension], span.offset[dimension]
    low, high = groups[dimension]
    return {
        "global id": (offset + low * local, offset + (high + 1) * local - 1),
        "group id": (low, high),
        "local id": (0, local - 1),
        "global size": (span.global_size[dimension],) * 2,
        "local size": (local, local),
        "group count": (span.groups[dimension],) * 2,
        "global offset": (offset, offset),
    }[operation]


def _partly_known(step: IndexStep, operands: list[Interval | None]) -> Interval | None:
    """What holds although an operand is unknown: a mask and a remainder bound any value."""
    second = operands[-1]
    if second is None or second[0] != second[1]:
        return None
    if step.operation == "and" and second[0] >= 0:
        return 0, second[0]
    if step.operation == "urem" and second[0] > 0:
        return 0, second[0] - 1
    return None


def _arithmetic(step: IndexStep, known: list[Interval]) -> Interval | None:
    a = known[0] if known else (0, 0)
    b = known[1] if len(known) > 1 else (0, 0)
    result: Interval | None
    match step.operation:
        case "add":
            result = a[0] + b[0], a[1] + b[1]
        case "sub":
            result = a[0] - b[1], a[1] - b[0]
        case "mul":
            products = [x * y for x in a for y in b]
            result = min(products), max(products)
        case "multiply-add":
            c = known[2]
            products = [x * y for x in a for y in b]
            result = min(products) + c[0], max(products) + c[1]
        case "shl":
            result = (a[0] << b[0], a[1] << b[0]) if b[0] == b[1] and 0 <= b[0] < 64 else None
        case "lshr" | "ashr":
            result = (a[0] >> b[0], a[1] >> b[0]) if b[0] == b[1] and 0 <= b[0] < 64 and a[0] >= 0 else None
        case "udiv" | "sdiv":
            result = (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None
        case "urem" | "srem":
            result = (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None
        case "and":
            result = (0, min(a[1], b[1])) if a[0] >= 0 and b[0] >= 0 else None
        case "or":
            result = (max(a[0], b[0]), a[1] + b[1]) if a[0] >= 0 and b[0] >= 0 else None
        case "xor":
            top = max(a[1], b[1])
            result = (0, (1 << max(top, 1).bit_length()) - 1) if a[0] >= 0 and b[0] >= 0 else None
        case "min":
            result = min(a[0], b[0]), min(a[1], b[1])
        case "max":
            result = max(a[0], b[0]), max(a[1], b[1])
        case "clamp":
            c = known[2]
            result = min(max(a[0], b[0]), c[0]), min(max(a[1], b[1]), c[1])
        case "join":
            result = min(x[0] for x in known), max(x[1] for x in known)
        case "zext":
            result = a if a[0] >= 0 else None
        case "sext":
            result = a if a[1] < 1 << (step.value - 1) else None
        case "trunc":
            result = a if a[0] >= -(1 << (step.value - 1)) and a[1] < 1 << step.value else None
        case "count up":  # start, step, the last value that may be reached
            result = (a[0], max(a[1], known[2][1])) if b[0] > 0 else None
        case "count down":
            result = (min(a[0], known[2][0]), a[1]) if b[1] < 0 else None
        case _:
            result = None
    if result is not None and step.operation in ("add", "sub", "mul", "shl", "multiply-add") and step.value:
        low, high = -(1 << (step.value - 1)), 1 << step.value
        return result if result[0] >= low and result[1] < high else None
    return result
