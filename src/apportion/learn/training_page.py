"""The page of a run: curves, scores and settings in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .2rem .8rem; text-align: left }
tr:nth-child(even) { background: #f4f4f6 } th { border-bottom: 2px solid #999 }
svg { background: #fafafc; border: 1px solid #ddd } figcaption { color: #555 } figure { margin: 1rem 0 }
"""
_WIDTH, _HEIGHT, _MARGIN = 720, 240, 46
_METRICS = ("f1", "precision", "recall", "accuracy")


def page(described: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> str:
    """The HTML of a run, from its settings, the lines of its metrics, and its evaluation."""
    loss = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    f1 = [(row["step"], row["validation_f1"]) for row in rows if "validation_f1" in row]
    buckets = [
        [f"{row['first']} to {row['last'] if row['last'] < 10**9 else '…'}", f"{row['examples']:,}",
         *(_interval(row[name]) for name in _METRICS)]
        for row in result["by_steps"]
    ]  # fmt: skip
    test = result["test"]
    scores = (
        [] if test is None else [[f"{test['examples']:,}", *(_interval(test[name]) for name in _METRICS)]]
    )
    settings = [[escape(key), escape(str(value))] for key, value in _flat(described)]
    return "\n".join(
        [
            f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(result['task'])}</title>",
            f"<style>{_STYLE}</style><h1>{escape(result['task'])}</h1>",
            "<h2>Test examples</h2>",
            _table(["examples", *_METRICS], scores),
            "<h2>By steps of the exact analysis</h2>",
            _table(["steps", "examples", *_METRICS], buckets),
            "<h2>Training</h2>",
            _curve("Loss over training steps", loss),
            _curve("F1 on the validation examples over training steps", f1),
            "<h2>Settings</h2>",
            _table(["setting", "value"], settings),
            "</html>",
        ]
    )


def _interval(score: Mapping[str, float]) -> str:
    return f"{score['value']:.4f} ({score['low']:.4f} to {score['high']:.4f})"


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return rows


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "<p>None.</p>"
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{cells}</table>"


def _curve(caption: str, points: Sequence[tuple[float, float]]) -> str:
    """A line over its points, with the ends of both axes named."""
    if not points:
        return f"<p>{escape(caption)}: nothing was logged.</p>"
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    right, inner_width, inner_height = max(xs), _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN

    def place(x: float, y: float) -> str:
        across = _MARGIN + inner_width * x / max(right, 1)
        down = _MARGIN + inner_height * (1 - (y - low) / ((high - low) or 1))
        return f"{across:.1f},{down:.1f}"

    line = " ".join(place(x, y) for x, y in points)
    foot = _HEIGHT - _MARGIN
    return (
        f"<figure><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' width='{_WIDTH}' role='img' "
        f"aria-label='{escape(caption)}'>"
        f"<path d='M{_MARGIN} {_MARGIN}V{foot}H{_WIDTH - _MARGIN}' fill='none' stroke='#999'/>"
        f"<polyline points='{line}' fill='none' stroke='#2456a6' stroke-width='2'/>"
        f"<g font-size='12' fill='#555'><text x='4' y='{_MARGIN - 8}'>{high:.4g}</text>"
        f"<text x='4' y='{foot}'>{low:.4g}</text><text x='{_MARGIN}' y='{foot + 18}'>0</text>"
        f"<text x='{_WIDTH - _MARGIN}' y='{foot + 18}' text-anchor='end'>{right:,}</text></g></svg>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
