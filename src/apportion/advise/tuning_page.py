"""A tuning as one HTML page that needs nothing else: the best, how it was found, what the model predicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from itertools import accumulate

import numpy as np

from apportion.advise.tuning import TriedConfiguration, Tuning, by_time

_WIDTH, _HEIGHT, _MARGIN = 640, 260, 48
_SHOWN = 20
"Rows of the table."
Scale = Callable[[float], float]
"A value → its place on the page."
_STYLE = """
:root { --ink: #1d2129; --soft: #667; --line: #dde; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9ebf0; --soft: #9aa; --line: #3a3f4b; --paper: #15181e }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 50rem; margin: 2.5rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--paper) }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem }
table { border-collapse: collapse; width: 100%; font-size: .95rem }
td, th { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
         font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: var(--soft) } p { color: var(--soft) }
"""


def page(tuning: Tuning) -> str:
    """The page."""
    best = tuning.fastest
    words = ", ".join(f"{name} = {value}" for name, value in tuning.in_words(best.configuration).items())
    gained = "" if tuning.gain is None else f", {tuning.gain.in_words()}"
    size = len(tuning.predicted) or tuning.space.size
    of = "" if math.isinf(size) else f" of {size:,.0f}"
    failed = sum(bool(one.failure) for one in tuning.measured)
    sure = (
        ""
        if np.isnan(tuning.tau_b)
        else f" On measurements it had not seen its tau-b was {tuning.tau_b:.2f}."
    )
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Tuning {escape(tuning.name)}</title>"
        f"<style>{_STYLE}</style><h1>{escape(words)}</h1>"
        f"<p>{escape(tuning.name)}: {_time(best.median)}{escape(gained)}. "
        f"{len(tuning.measured)}{of} configurations measured, {failed} failed.</p>"
        f"<h2>How it was found</h2>{_search(tuning)}"
        f"{_scatter(tuning)}"
        f"<p>The model predicts every configuration from those measured.{sure}</p>"
        f"<h2>The fastest</h2>{_table(tuning)}</html>\n"
    )


def _search(tuning: Tuning) -> str:
    """Each measurement in turn, and the best so far."""
    times = [one.median for one in tuning.measured]
    good = [(place, value) for place, value in enumerate(times) if not np.isnan(value)]
    x, y = _scales(0, max(1, len(times) - 1), min(v for _, v in good), max(v for _, v in good))
    dots = "".join(f"<circle cx='{x(p):.1f}' cy='{y(v):.1f}' r='3' fill='#4477aa'/>" for p, v in good)
    lowest = accumulate((value for _, value in good), min)
    line = " ".join(f"{x(p):.1f},{y(v):.1f}" for (p, _), v in zip(good, lowest, strict=True))
    drawn = f"{dots}<polyline points='{line}' fill='none' stroke='#ee6677' stroke-width='2'/>"
    return _figure(drawn, "measurement", [value for _, value in good], "time of each, and the best so far")


def _scatter(tuning: Tuning) -> str:
    """What was measured against what the model predicts for it; nothing where a space is too large."""
    if not len(tuning.predicted):
        return ""
    places = {repr(sorted(one.items())): place for place, one in enumerate(tuning.space.configurations)}
    pairs = [
        (float(tuning.predicted[places[repr(sorted(one.configuration.items()))]]), one.median)
        for one in tuning.measured
        if not one.failure
    ]
    values = [value for pair in pairs for value in pair if value > 0]
    x, y = _scales(min(values), max(values), min(values), max(values))
    dots = "".join(
        f"<circle cx='{x(max(p, min(values))):.1f}' cy='{y(m):.1f}' r='3' fill='#228833'/>" for p, m in pairs
    )
    low, high = min(values), max(values)
    line = f"<line x1='{x(low):.1f}' y1='{y(low):.1f}' x2='{x(high):.1f}' y2='{y(high):.1f}' stroke='#99a'/>"
    figure = _figure(line + dots, "predicted", values, "measured over predicted time")
    return f"<h2>TriedConfiguration and predicted</h2>{figure}"


def _scales(left: float, right: float, low: float, high: float) -> tuple[Scale, Scale]:
    across, up = max(right - left, 1e-12), max(high - low, 1e-12)
    return (
        lambda value: _MARGIN + (value - left) / across * (_WIDTH - 2 * _MARGIN),
        lambda value: _HEIGHT - _MARGIN - (value - low) / up * (_HEIGHT - 2 * _MARGIN),
    )


def _figure(drawn: str, below: str, values: list[float], label: str) -> str:
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{label}'>{drawn}"
        f"<text x='4' y='{_HEIGHT - _MARGIN}'>{_time(min(values))}</text>"
        f"<text x='4' y='{_MARGIN}'>{_time(max(values))}</text>"
        f"<text x='{_WIDTH / 2}' y='{_HEIGHT - 12}' text-anchor='middle'>{below}</text></svg>"
    )


def _table(tuning: Tuning) -> str:
    names = list(tuning.space.values)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(_row(one, names) for one in list(by_time(tuning))[:_SHOWN])
    return f"<table><tr>{head}<th>median</th><th>least … most</th></tr>{rows}</table>"


def _row(one: TriedConfiguration, names: list[str]) -> str:
    cells = "".join(f"<td>{escape(str(one.configuration[name]))}</td>" for name in names)
    if one.failure:
        return f"<tr>{cells}<td colspan='2'>{escape(one.failure)}</td></tr>"
    between = f"{_time(min(one.seconds))} … {_time(max(one.seconds))}" if one.seconds else ""
    return f"<tr>{cells}<td>{_time(one.median)}</td><td>{between}</td></tr>"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
