"""Figures of Nichols et al. as SVG: a run's relative performance, distributions, right orders, ROC curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from apportion.learn.relative.performance import SLOWEST, Roc, vector_of

Numbers = NDArray[np.float64]
_WIDTH, _LEFT, _ROW = 640, 190, 26
_BLUE, _GREY, _RED = "#2456a6", "#9aa3ad", "#b3261e"


def bars(
    title: str, labels: Sequence[str], values: Sequence[float], *, errors: Sequence[tuple[float, float]] = ()
) -> str:
    """Horizontal bars from 0 to 1, with whiskers where errors (low, high) are given: Figures 3 and 4."""
    left, inner, parts = _left(labels), _WIDTH - _LEFT - 60, []
    for row, (label, value) in enumerate(zip(labels, values, strict=True)):
        top = 34 + row * _ROW
        parts.append(_text(left - 8, top + 13, label, anchor="end"))
        parts.append(
            f"<rect x='{left}' y='{top}' width='{inner * min(1.0, max(0.0, value)):.1f}' "
            f"height='18' fill='{_BLUE}'/>"
        )
        if errors:
            low, high = (min(1.0, max(0.0, end)) for end in errors[row])
            middle = top + 9
            parts.append(
                f"<path d='M{left + inner * low:.1f} {middle}H{left + inner * high:.1f}' "
                f"stroke='#222' stroke-width='2'/>"
            )
        parts.append(_text(left + inner + 8, top + 13, f"{value:.2f}"))
    return _svg(title, 44 + len(labels) * _ROW, parts, width=left + inner + 60)


def distributions(
    title: str, systems: Sequence[str], log_times: Numbers, *, marked: Sequence[float] = ()
) -> str:
    """Figure 2: each system's middle half, range of nine in ten runs, and median of t / t_slowest.

    Args:
        log_times: (N, S).
        marked: of one run, to be seen among the others.
    """
    vectors, left, inner, parts = vector_of(log_times, SLOWEST), _left(systems), _WIDTH - _LEFT - 60, []
    for row, system in enumerate(systems):
        low, first, middle, third, high = np.quantile(vectors[:, row], [0.05, 0.25, 0.5, 0.75, 0.95])
        top = 34 + row * _ROW

        def across(value: float) -> float:
            return left + inner * float(value)

        parts.append(_text(left - 8, top + 13, system, anchor="end"))
        parts.append(
            f"<path d='M{across(low):.1f} {top + 9}H{across(high):.1f}' stroke='{_GREY}' stroke-width='2'/>"
        )
        parts.append(
            f"<rect x='{across(first):.1f}' y='{top}' width='{max(1.0, across(third) - across(first)):.1f}' "
            f"height='18' fill='{_BLUE}' fill-opacity='0.55'/>"
        )
        parts.append(f"<path d='M{across(middle):.1f} {top}v18' stroke='#222' stroke-width='2'/>")
        if len(marked):
            parts.append(f"<circle cx='{across(marked[row]):.1f}' cy='{top + 9}' r='5' fill='{_RED}'/>")
    foot = 34 + len(systems) * _ROW
    parts += [_text(left, foot + 14, "0"), _text(left + inner, foot + 14, "1 (slowest)", anchor="end")]
    return _svg(title, foot + 22, parts, width=left + inner + 60)


def roc_curves(title: str, curves: Mapping[str, Roc]) -> str:
    """Figure 5: true against false positive rate of each curve, and the diagonal of chance."""
    size, left, top = 300, 60, 34
    colours = (_BLUE, "#2e7d32", "#8e44ad", "#c77700", "#00838f")
    parts = [
        f"<path d='M{left} {top}V{top + size}H{left + size}' fill='none' stroke='#999'/>",
        f"<path d='M{left} {top + size}L{left + size} {top}' stroke='{_RED}' stroke-dasharray='5 4'/>",
        _text(left, top + size + 16, "0"),
        _text(left + size, top + size + 16, "false positive rate  1", anchor="end"),
        _text(left - 6, top + 8, "1", anchor="end"),
    ]  # fmt: skip
    for number, (name, curve) in enumerate(curves.items()):
        colour = colours[number % len(colours)]
        line = " ".join(
            f"{left + size * x:.1f},{top + size * (1 - y):.1f}"
            for x, y in zip(curve.false_positive, curve.true_positive, strict=True)
        )
        parts.append(f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2'/>")
        parts.append(
            _text(left, top + size + 40 + 20 * number, f"{name}: area {curve.area:.2f}", colour=colour)
        )
    return _svg(title, top + size + 48 + 20 * len(curves), parts, width=_WIDTH)


def page(title: str, figures: Sequence[str]) -> str:
    """Figures in one HTML file that needs nothing else."""
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<body style='font:15px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto'>"
        f"<h1>{escape(title)}</h1>"
        + "".join(f"<figure style='margin:1rem 0'>{figure}</figure>" for figure in figures)
        + "</body></html>\n"
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#333") -> str:
    style = f"font-size='12' fill='{colour}' text-anchor='{anchor}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(words)}</text>"


def _left(labels: Sequence[str]) -> float:
    """Where bars begin: behind the longest label."""
    return max(_LEFT, 16 + 6.8 * max((len(label) for label in labels), default=0))


def _svg(title: str, height: float, parts: Sequence[str], *, width: float) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
        f"font-family='system-ui, sans-serif' role='img' aria-label='{escape(title)}'>"
        f"<rect width='100%' height='100%' fill='white'/>"
        f"<text x='8' y='20' font-size='14' font-weight='600' fill='#222'>{escape(title)}</text>"
        f"{''.join(parts)}</svg>"
    )
