"""Figures of Nichols et al. as SVG: distributions of relative performance, right orders, ROC curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.learn.relative.performance import SLOWEST, Roc, vector_of
from apportion.report.svg import AXIS, INK, SOFT, circle, colour, drawing, path, polyline, rect, text

Numbers = NDArray[np.float64]
_WIDTH, _ROW = 640, 26
_RED = "#b3261e"


def distributions(
    title: str, systems: Sequence[str], log_times: Numbers, *, marked: Sequence[float] = ()
) -> str:
    """Figure 2: each system's middle half, range of nine in ten runs, and median of t / t_slowest.

    Args:
        log_times: (N, S).
        marked: of one run, to be seen among the others.
    """
    left = max(130.0, 16 + 6.8 * max((len(name) for name in systems), default=0))
    vectors, inner, foot = vector_of(log_times, SLOWEST), _WIDTH - left - 60, 34 + len(systems) * _ROW
    parts = [text(8, 20, title, font_weight="bold", fill=INK)]
    for row, system in enumerate(systems):
        low, first, middle, third, high = np.quantile(vectors[:, row], [0.05, 0.25, 0.5, 0.75, 0.95])
        top = 34 + row * _ROW

        def across(value: float) -> float:
            return left + inner * float(value)

        parts.append(text(left - 8, top + 13, system, anchor="end"))
        parts.append(path(f"M{across(low):.1f} {top + 9}H{across(high):.1f}", AXIS, stroke_width=2))
        wide = max(1.0, across(third) - across(first))
        parts.append(rect(across(first), top, wide, 18, colour(0), fill_opacity=0.5))
        parts.append(path(f"M{across(middle):.1f} {top}v18", INK, stroke_width=2))
        if len(marked):
            parts.append(circle(across(marked[row]), top + 9, 5, _RED))
    parts += [text(left, foot + 14, "0"), text(left + inner, foot + 14, "1 (slowest)", anchor="end")]
    return drawing(left + inner + 60, foot + 22, parts, label=title)


def roc_curves(title: str, curves: Mapping[str, Roc]) -> str:
    """Figure 5: true against false positive rate of each curve, and the diagonal of chance."""
    size, left, top = 300, 60, 34
    parts = [
        text(8, 20, title, font_weight="bold", fill=INK),
        path(f"M{left} {top}V{top + size}H{left + size}", AXIS),
        path(f"M{left} {top + size}L{left + size} {top}", SOFT, stroke_dasharray="5 4"),
        text(left, top + size + 16, "0"),
        text(left + size, top + size + 16, "false positive rate  1", anchor="end"),
        text(left - 6, top + 8, "1", anchor="end"),
    ]
    for number, (name, curve) in enumerate(curves.items()):
        points = zip(
            left + size * np.asarray(curve.false_positive),
            top + size * (1 - np.asarray(curve.true_positive)),
            strict=True,
        )
        parts.append(polyline(points, colour(number), stroke_width=2))
        named = f"{name}: area {curve.area:.2f}"
        parts.append(text(left, top + size + 40 + 20 * number, named, fill=colour(number)))
    return drawing(_WIDTH, top + size + 48 + 20 * len(curves), parts, label=title)
