"""The results page of co-execution: every kernel of the suite, and its curve of cuts as a drawing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from apportion.device.measure import Measured
from apportion.suite.efficiency import Row

TARGETS = (
    ("mean efficiency of the third launch", 0.95),
    ("mean efficiency of the first launch", 0.85),
    ("worst third launch against the best device alone", 1.05),
    ("host overhead of launches of 100 ms and more", 0.02),
)
_LENGTHS = ((0.0, 1.0), (1.0, 10.0), (10.0, 100.0), (100.0, float("inf")))
"Launches by their milliseconds, for the table of overheads."
CURVES = "co-execution-curves.svg"


def page(rows: Sequence[Row], machine: Mapping[str, Any], command: str, remarks: str = "") -> str:
    """The page in Markdown; its drawing is `curves(rows)`, in a file called `CURVES` beside it.

    Args:
        machine: what it ran on, in words: the values are printed as they are.
        command: what makes the rows.
        remarks: what there is to say of them, in Markdown.
    """
    good = [row for row in rows if row.efficiency is not None]
    shared = [row for row in good if not row.obstacle]
    lines = [
        "# One kernel on two devices: how near the chosen cut comes to the best one",
        "",
        f"`{command}`: {', '.join(f'{key} {value}' for key, value in machine.items())}.",
        "",
        f"{len(good)} kernels of {len({row.problem for row in good})} problems; the work of {len(shared)} "
        "can be shared. Wall clock as the caller sees it, transfers and merging included, medians with 95 % "
        "intervals (order statistics). What is compared is launched in turn in each round. The oracle is the "
        "best cut of a 0.1 grid refined twice by halves, or a device alone, measured again in the rounds; "
        "efficiency is its time over the policy's, round by round. Policy: `learned+feedback`, which starts "
        f"each trial without memory; first launches are foretold from {_origins(good)}.",
        "",
        *([remarks.rstrip(), ""] if remarks else []),
        *_summary(good),
        "",
        f"![split curves]({CURVES})",
        "",
        *_table(good),
    ]
    failed = [row for row in rows if row.failure]
    if failed:
        lines += ["", "Failed:", "", *(f"- {row.problem} / {row.kernel}: {row.failure}" for row in failed)]
    return "\n".join([*lines, ""])


def _origins(rows: Sequence[Row]) -> str:
    return " or ".join(sorted({row.origin for row in rows if row.origin})) or "nothing"


def mean_with_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The mean, and the middle 95 % of means of resampled values."""
    draws = np.random.default_rng(seed).choice(values, (2000, len(values))).mean(1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return statistics.fmean(values), float(low), float(high)


def _summary(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["Nothing was measured."]
    third = mean_with_interval([row.efficiency.median for row in rows if row.efficiency])
    first = mean_with_interval([row.first_efficiency.median for row in rows if row.first_efficiency])
    worst = max(rows, key=lambda row: row.against_best.median if row.against_best else 0.0)
    assert worst.against_best is not None
    long = [over / total for row in rows for total, over in row.overheads if total >= 100]
    found: list[tuple[str, bool]] = [
        (f"{third[0]:.3f} ({third[1]:.3f} to {third[2]:.3f})", third[0] >= TARGETS[0][1]),
        (f"{first[0]:.3f} ({first[1]:.3f} to {first[2]:.3f})", first[0] >= TARGETS[1][1]),
        (
            f"{worst.against_best.median:.3f} ({worst.against_best.low:.3f} to "
            f"{worst.against_best.high:.3f}), `{worst.kernel}`",
            worst.against_best.median <= TARGETS[2][1],
        ),
        (
            f"{statistics.median(long):.2%} (median of {len(long)})" if long else "no such launch",
            bool(long) and statistics.median(long) <= TARGETS[3][1],
        ),
    ]
    lines = ["| | target | here | met |", "|---|---|---|---|"]
    for (name, target), (said, met) in zip(TARGETS, found, strict=True):
        lines.append(f"| {name} | {target:g} | {said} | {'yes' if met else '**no**'} |")
    slower = [row.kernel for row in rows if row.against_best and row.against_best.median > TARGETS[2][1]]
    clearly = [row.kernel for row in rows if row.against_best and row.against_best.low > TARGETS[2][1]]
    lines += [
        "",
        f"More than 5 % slower than the best device alone: {', '.join(slower) or 'none'}; by the whole of "
        f"their intervals: {', '.join(clearly) or 'none'}.",
        *_first_launches(rows),
    ]
    gains = [1 / row.against_best.median for row in rows if row.against_best and not row.obstacle]
    if gains:
        lines.append(
            "Against the best device alone, kernels that can be shared are "
            f"{statistics.geometric_mean(gains):.2f} times as fast on average (geometric mean; most "
            f"{max(gains):.2f})."
        )
    lines += ["", "| launches of | number | time in which no device worked, median | share of the launch |",
              "|---|---:|---:|---:|"]  # fmt: skip
    for low, high in _LENGTHS:
        chosen = [(t, o) for row in rows for t, o in row.overheads if low <= t < high]
        if chosen:
            label = f"{low:g} to {high:g} ms" if high < float("inf") else f"{low:g} ms and more"
            over = statistics.median(o for _, o in chosen)
            share = statistics.median(o / t for t, o in chosen)
            lines.append(f"| {label} | {len(chosen)} | {1e3 * over:.0f} µs | {share:.2%} |")
    return lines


def _first_launches(rows: Sequence[Row]) -> list[str]:
    """How far the shares of first launches are from the best ones, beside the best constant, and what they
    cost."""
    known = [row for row in rows if row.first_efficiency is not None and row.first_shares]
    if not known:
        return []
    name = next(iter(known[0].devices))
    best = np.array([row.oracle_share for row in known])
    off = 100 * np.abs(np.array([row.first_shares.get(name, 0.0) for row in known]) - best)
    constant = min(np.linspace(0, 1, 21), key=lambda share: np.abs(share - best).mean())
    cost = [1 / row.first_efficiency.median for row in known if row.first_efficiency]
    error, flat, time = (
        mean_with_interval(list(each)) for each in (off, 100 * np.abs(constant - best), cost)
    )
    return [
        f"Shares of first launches are off the best cut by {error[0]:.1f} ({error[1]:.1f} to {error[2]:.1f}) "
        f"percent of the work, those of the best constant, {constant:g} for {name}, by {flat[0]:.1f} "
        f"({flat[1]:.1f} to {flat[2]:.1f}); first launches take {time[0]:.3f} ({time[1]:.3f} to "
        f"{time[2]:.3f}) of the best cut's time (means over {len(known)} kernels).",
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    names = list(rows[0].devices)
    lines = [
        f"| kernel | {' | '.join(f'{name} alone, ms' for name in names)} | best cut ({names[0]}) | its ms "
        "| first launch | efficiency | third launch | its ms | efficiency | over best alone | merge |",
        "|---|" + "---:|" * (len(names) + 8) + "---|",
    ]
    for row in rows:
        cells = [f"`{row.kernel}`", *(_interval(row.alone.get(name)) for name in names)]
        cells += [f"{row.oracle_share:.3g}", _interval(row.oracle)]
        cells += [f"{row.first_shares.get(names[0], 0):.3f}", _interval(row.first_efficiency, 3)]
        cells += [f"{row.settled_shares.get(names[0], 0):.3f}", _interval(row.settled)]
        cells += [_interval(row.efficiency, 3), _interval(row.against_best, 3)]
        cells.append("one device" if row.obstacle else ", ".join(sorted(set(row.merge.values()))))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _interval(measured: Measured | None, digits: int = 2) -> str:
    if measured is None:
        return ""
    return f"{measured.median:.{digits}f} ({measured.low:.{digits}f}–{measured.high:.{digits}f})"


def curves(rows: Sequence[Row], columns: int = 5) -> str:
    """Milliseconds over the share of the first device, a panel for each kernel that can be shared."""
    drawn = [row for row in rows if row.curve]
    width, height, gap = 190, 130, 14
    lines = -(-max(len(drawn), 1) // columns)
    size = columns * (width + gap) + gap, lines * (height + gap) + gap + 24
    panels = []
    for number, row in enumerate(drawn):
        x = gap + number % columns * (width + gap)
        y = 24 + gap + number // columns * (height + gap)
        panels.append(f'<g transform="translate({x},{y})">{_panel(row, width, height)}</g>')
    first = next(iter(drawn[0].devices)) if drawn else "the first device"
    legend = (
        f"milliseconds over the share of {first}; "
        "line: measured cuts, ring: the best, square: first launch, dot: third launch"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" font-family="sans-serif">'
        f'<rect width="{size[0]}" height="{size[1]}" fill="#fff"/>'
        f'<text x="{gap}" y="20" font-size="12" fill="#333">{escape(legend)}</text>{"".join(panels)}</svg>'
    )


def _panel(row: Row, width: int, height: int) -> str:
    points = sorted((float(share), milliseconds) for share, milliseconds in row.curve.items())
    most = 1.05 * min(max(value for _, value in points), 6 * min(value for _, value in points))
    left, top, bottom = 6, 18, 14

    def place(share: float, value: float) -> tuple[float, float]:
        x = left + share * (width - 2 * left)
        return x, top + (height - top - bottom) * (1 - min(value, most) / most)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    marks = []
    if row.oracle is not None:
        x, y = place(row.oracle_share, row.oracle.median)
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="#228833" stroke-width="2"/>'
        )
    name = next(iter(row.devices))
    if row.first is not None:
        x, y = place(row.first_shares.get(name, 0.0), row.first.median)
        marks.append(f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="#ee6677"/>')
    if row.settled is not None:
        x, y = place(row.settled_shares.get(name, 0.0), row.settled.median)
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#aa3377"/>')
    base = height - bottom
    return (
        f'<rect width="{width}" height="{height}" fill="#f7f7f7"/>'
        f'<text x="{left}" y="12" font-size="10" font-weight="bold" fill="#222">{escape(row.kernel)}</text>'
        f'<text x="{width - left}" y="12" font-size="9" text-anchor="end" fill="#555">{most:.3g} ms</text>'
        f'<line x1="{left}" y1="{base}" x2="{width - left}" y2="{base}" stroke="#999"/>'
        f'<text x="{left}" y="{height - 3}" font-size="9" fill="#555">0</text>'
        f'<text x="{width - left}" y="{height - 3}" font-size="9" text-anchor="end" fill="#555">1</text>'
        f'<polyline points="{line}" fill="none" stroke="#4477aa" stroke-width="1.5"/>{"".join(marks)}'
    )
