"""How labels are distributed: the two histograms of the thesis' Figure 5.1 as SVG, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from apportion.data.records import CLASSES
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.load_balance import classes_of

BINS = 20
_WIDTH, _HEIGHT, _LEFT, _TOP, _FOOT = 420, 260, 44, 34, 48
_FILL = "#2563a8"


def class_counts(table: KernelTable) -> list[int]:
    """How many rows each of `CLASSES` has."""
    counts: list[int] = np.bincount(classes_of(table.shares), minlength=len(CLASSES)).tolist()
    return counts


def share_counts(table: KernelTable) -> list[int]:
    """How many rows have a share in each of `BINS` equal steps from 0 to 100 percent."""
    counts: list[int] = np.histogram(table.shares, bins=BINS, range=(0, 100))[0].tolist()
    return counts


def figure(table: KernelTable) -> str:
    """Both distributions side by side: classes, and shares."""
    step = 100 // BINS
    by_class = _bars(
        f"{table.pair}: classes", class_counts(table), [f"{value}" for value in CLASSES], every=1
    )
    edges = [f"{number * step}" for number in range(BINS)]
    by_share = _bars(f"{table.pair}: shares", share_counts(table), edges, every=4)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {_HEIGHT}" width="{2 * _WIDTH}" '
        f'height="{_HEIGHT}" font-family="system-ui, sans-serif" role="img" '
        f'aria-label="Distribution of the CPU\'s share, {escape(table.pair)}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/><g>{by_class}</g>'
        f'<g transform="translate({_WIDTH} 0)">{by_share}</g></svg>\n'
    )


def _bars(title: str, counts: Sequence[int], names: Sequence[str], *, every: int) -> str:
    """Bars from the left, the number above each where there is room, and every so many a name below."""
    inner, tall = _WIDTH - _LEFT - 12, _HEIGHT - _TOP - _FOOT
    most, width = max(*counts, 1), inner / len(counts)
    parts = [f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>']
    foot = _HEIGHT - _FOOT
    for number, (count, name) in enumerate(zip(counts, names, strict=True)):
        x, height = _LEFT + number * width, tall * count / most
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{foot - height:.1f}" width="{width - 2:.1f}" height="{height:.1f}" '
            f'fill="{_FILL}"><title>{escape(name)} %: {count} rows</title></rect>'
        )
        if width > 24:
            parts.append(_text(x + width / 2, foot - height - 4, str(count)))
        if number % every == 0:
            parts.append(_text(x + width / 2, foot + 16, name))
    parts.append(f'<path d="M{_LEFT} {_TOP}V{foot}H{_WIDTH - 12}" fill="none" stroke="#666"/>')
    parts.append(_text(_LEFT - 14, _TOP + 8, str(most)))
    parts.append(_text(_LEFT + inner / 2, _HEIGHT - 12, "share of the work for the CPU, percent"))
    return "".join(parts)


def _text(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="#333" text-anchor="middle">{escape(text)}</text>'
    )
