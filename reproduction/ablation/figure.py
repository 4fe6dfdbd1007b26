"""Figure 5.3 drawn again: each network's score against the time of its forward pass, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from reproduction.ablation.scores import PUBLISHED, Score

_WIDTH, _HEIGHT = 430, 300
_LEFT, _TOP = 60, 34
_PANELS = (("classification", "accuracy", False), ("regression", "mean absolute error", True))
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")


def forward_figure(scores: Sequence[Score], times: Sequence[Mapping[str, Any]]) -> str | None:
    """Two panels, the better towards the lower right, as published; None where there is nothing to draw."""
    device = times[0]["device"] if times else ""
    spent = {(t["row"], t["form"]): float(t["plain"]) for t in times if t["device"] == device}
    panels = []
    for form, title, reverse in _PANELS:
        points = [
            (s.row, s.main.value, spent[s.row, form])
            for s in scores
            if (s.form, s.budget, s.protocol) == (form, PUBLISHED, "thesis") and (s.row, form) in spent
        ]
        if points:
            panels.append((title, reverse, points))
    if not panels:
        return None
    names = list(dict.fromkeys(name for _, _, points in panels for name, _, _ in points))
    height = _TOP + _HEIGHT + 56 + 15 * math.ceil(len(names) / 2)
    width = len(panels) * (_LEFT + _WIDTH + 20)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (title, reverse, points) in enumerate(panels):
        left = number * (_LEFT + _WIDTH + 20) + _LEFT
        parts += _panel(left, f"{title}, {device}, random folds", reverse, points, names)
    for number, name in enumerate(names):
        x, y = 20 + (number % 2) * width / 2, _TOP + _HEIGHT + 56 + 15 * (number // 2)
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{_colour(number)}"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">{number + 1} {escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: float, title: str, reverse: bool, points: Sequence[tuple[str, float, float]], names: Sequence[str]
) -> list[str]:
    values, times = [value for _, value, _ in points], [time for _, _, time in points]
    low, high = _widened(min(values), max(values))
    bottom, top = math.log10(min(times) * 0.8), math.log10(max(times) * 1.25)

    def x(value: float) -> float:
        part = (value - low) / (high - low)
        return left + _WIDTH * (1 - part if reverse else part)

    def y(time: float) -> float:
        return _TOP + _HEIGHT * (1 - (math.log10(time) - bottom) / (top - bottom))

    parts = [
        f'<text x="{left}" y="{_TOP - 12}" font-weight="bold">{escape(title)}</text>',
        f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>',
    ]
    for step in range(5):
        value = low + (high - low) * step / 4
        parts.append(
            f'<text x="{x(value):.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{value:.3g}</text>'
        )
    for time in _ticks(10**bottom, 10**top):
        parts.append(f'<path d="M{left} {y(time):.1f}h{_WIDTH}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{left - 6}" y="{y(time) + 4:.1f}" text-anchor="end">{time:g} ms</text>')
    for name, value, time in points:
        number = names.index(name)
        at = f'cx="{x(value):.1f}" cy="{y(time):.1f}"'
        parts.append(f'<circle {at} r="8" fill="{_colour(number)}"><title>{escape(name)}</title></circle>')
        parts.append(
            f'<text x="{x(value):.1f}" y="{y(time) + 3.5:.1f}" text-anchor="middle" fill="white" '
            f'font-size="9">{number + 1}</text>'
        )
    return parts


def _ticks(low: float, high: float) -> list[float]:
    candidates = [digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5)]
    return [value for value in candidates if low <= value <= high]


def _widened(low: float, high: float) -> tuple[float, float]:
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
