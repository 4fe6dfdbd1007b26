"""Figure 5.3 drawn again: each network's score against the time of its forward pass, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from apportion.report.svg import AXIS, circle, colour, drawing, path, rect, text
from reproduction.ablation.scores import PUBLISHED, Score

_WIDTH, _HEIGHT = 430, 300
_LEFT, _TOP = 60, 34
_PANELS = (("classification", "accuracy", False), ("regression", "mean absolute error", True))


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
    parts: list[str] = []
    for number, (title, reverse, points) in enumerate(panels):
        left = number * (_LEFT + _WIDTH + 20) + _LEFT
        parts += _panel(left, f"{title}, {device}, random folds", reverse, points, names)
    for number, name in enumerate(names):
        x, y = 20 + (number % 2) * width / 2, _TOP + _HEIGHT + 56 + 15 * (number // 2)
        parts.append(circle(x, y - 4, 5, colour(number)))
        parts.append(text(x + 10, y, f"{number + 1} {name}"))
    return drawing(width, height, parts, label="score against forward time", font_size=11)


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
        text(left, _TOP - 12, title, font_weight="bold"),
        rect(left, _TOP, _WIDTH, _HEIGHT, "none", stroke=AXIS),
    ]
    for step in range(5):
        value = low + (high - low) * step / 4
        parts.append(text(x(value), _TOP + _HEIGHT + 16, f"{value:.3g}", anchor="middle"))
    for time in _ticks(10**bottom, 10**top):
        parts.append(path(f"M{left} {y(time):.1f}h{_WIDTH}", "#e5e5e5"))
        parts.append(text(left - 6, y(time) + 4, f"{time:g} ms", anchor="end"))
    for name, value, time in points:
        number = names.index(name)
        parts.append(circle(x(value), y(time), 8, colour(number), tip=name))
        parts.append(text(x(value), y(time) + 3.5, number + 1, anchor="middle", fill="white", font_size=9))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    candidates = [digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5)]
    return [value for value in candidates if low <= value <= high]


def _widened(low: float, high: float) -> tuple[float, float]:
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room
