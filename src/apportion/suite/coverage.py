"""What generated kernels cover, axis by axis, counted and drawn as SVG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apportion.report.svg import COLOURS, drawing, group, rect, text
from apportion.suite.generator import Generated

_CELL, _GAP, _LABEL = 16, 4, 150


@dataclass(frozen=True)
class Coverage:
    """How many kernels there are of each form, type and way of reading, and how their numbers are spread."""

    forms: Mapping[str, int]
    panels: Mapping[str, Mapping[str, int]]
    "Axis → value → kernels."

    @classmethod
    def of(cls, kernels: Sequence[Generated]) -> Coverage:
        """Counted over kernels."""
        panels: dict[str, Counter[str]] = {}
        for kernel in kernels:
            traits = kernel.traits
            work, size = float(traits["work"]), float(traits["bytes"])
            values = {
                "operations per work-item": _decade(work),
                "bytes per work-item": _decade(size),
                "operations per byte": _decade(work / size) if size else "no bytes",
                "type": str(traits.get("type", "")),
                "access": str(traits.get("access", "")),
                "dimensions": str(traits.get("dimensions", 1)),
                "special functions": f"{float(traits.get('special', 0.0)):.1f}",
                "divergence": _yes(traits, "divergence"),
                "local memory": _yes(traits, "local"),
                "barriers": _yes(traits, "barriers"),
                "atomics": _yes(traits, "atomics"),
                "work-items": "",
            }
            for axis, value in values.items():
                if value:
                    panels.setdefault(axis, Counter())[value] += 1
            for span in kernel.ranges:
                panels.setdefault("work-items of a range", Counter())[_decade(span.work_items)] += 1
                group = "×".join(map(str, span.local_size))
                panels.setdefault("work-group of a range", Counter())[group] += 1
        forms = Counter(kernel.form for kernel in kernels)
        return cls(dict(forms), {axis: dict(counted) for axis, counted in panels.items()})


def draw_coverage(coverage: Coverage) -> str:
    """A panel of bars for each axis."""
    panels = {"form": coverage.forms, **coverage.panels}
    width, heights, parts = 360, [0, 0, 0], []
    for axis, counted in panels.items():
        column = heights.index(min(heights))
        drawn, most = [text(4, 18, axis, font_weight="bold")], max(counted.values(), default=1)
        for row, (value, count) in enumerate(sorted(counted.items(), key=lambda item: _order(item[0]))):
            y, long = 26 + row * (_CELL + _GAP), 150 * count / most
            drawn.append(text(_LABEL, y + 12, value, anchor="end"))
            drawn.append(rect(_LABEL + 6, y, long, _CELL, COLOURS[0]))
            drawn.append(text(_LABEL + 10 + long, y + 12, count))
        parts.append(group(drawn, x=column * width, y=heights[column]))
        heights[column] += 34 + len(counted) * (_CELL + _GAP)
    return drawing(len(heights) * width, max(heights) + 10, parts, label="What the kernels cover")


def _decade(value: float) -> str:
    """`10 to 100`, by powers of ten."""
    if value <= 0:
        return "0"
    low = math.floor(math.log10(value))
    return f"{_power(low)} to {_power(low + 1)}"


def _power(exponent: int) -> str:
    return f"{10**exponent:,}" if exponent >= 0 else f"{10.0**exponent:g}"


def _yes(traits: Mapping[str, float | str], name: str) -> str:
    return "yes" if float(traits.get(name, 0.0)) else "no"


def _order(value: str) -> tuple[float, str]:
    head = value.split(" ")[0].split("×")[0].replace(",", "")
    try:
        return float(head), value
    except ValueError:
        return math.inf, value
