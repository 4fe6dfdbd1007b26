"""A run as one HTML file that needs nothing else: who did how much, each device alone, the curve of cuts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from apportion.device.base import DeviceInfo
from apportion.device.compare import Comparison

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
body { color: #1a1a1a } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd }
svg text { font-size: 12px; fill: #333 } .bar { fill: #4477aa } .best { fill: #228833 } .axis { stroke: #999 }
polyline { fill: none; stroke: #4477aa; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #eee } svg text { fill: #ddd } td, th { border-color: #444 }
}
"""


def page(comparison: Comparison, devices: list[DeviceInfo]) -> str:
    """The report of one run."""
    execution = comparison.execution
    title = f"{comparison.kernel} on {', '.join(info.id for info in devices)}"
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>',
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(_summary(comparison))}</p>",
            "<h2>Who did how much</h2>",
            _table(
                ("device", "share", "alone, ms", "what it is"),
                [
                    (
                        info.id,
                        f"{execution.split.get(info.id, 0):.1%}",
                        f"{execution.alone[info.id] * 1e3:.3f}" if info.id in execution.alone else "",
                        f"{info.name} ({info.platform} {info.driver})",
                    )
                    for info in devices
                ],
            ),
            "<h2>How results were put together</h2>",
            _table(("argument", "merge"), list(execution.merge.items())),
            f"<p>Conflicts: {execution.conflicts}. Verified: {'yes' if execution.verified else 'no'}. "
            f"{escape(execution.reason)}.</p>",
            _curve(comparison.curve, devices[0].id) if comparison.curve else "",
            "</html>",
        )
    )


def _summary(comparison: Comparison) -> str:
    text = f"{comparison.execution.seconds * 1e3:.3f} ms under the policy {comparison.execution.policy}"
    if comparison.speedup is not None:
        text += f", {comparison.speedup:.2f} times the speed of the best device alone"
    if comparison.efficiency is not None:
        text += f", {comparison.efficiency:.0%} of that of the best measured cut"
    return text + "."


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _curve(curve: Mapping[float, float], first: str) -> str:
    """Time over the share of the first device, as an inline drawing."""
    width, height, left, bottom = 640, 260, 60, 30
    most = max(curve.values()) * 1.05
    points = [
        (left + share * (width - left - 10), (height - bottom) * (1 - milliseconds / most))
        for share, milliseconds in sorted(curve.items())
    ]
    best = min(range(len(points)), key=lambda i: -points[i][1])
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle class="{"best" if i == best else "bar"}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>'
        f"{share:.3f}: {milliseconds:.3f} ms</title></circle>"
        for i, ((x, y), (share, milliseconds)) in enumerate(zip(points, sorted(curve.items()), strict=True))
    )
    ticks = "".join(
        f'<text x="{left + quarter / 4 * (width - left - 10):.0f}" y="{height - 8}" text-anchor="middle">'
        f"{quarter * 25} %</text>"
        for quarter in range(5)
    )
    return (
        f"<h2>Milliseconds over the share of {escape(first)}</h2>"
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="time over share">'
        f'<line class="axis" x1="{left}" y1="{height - bottom}" x2="{width}" y2="{height - bottom}"/>'
        f'<text x="4" y="14">{most:.3g} ms</text><text x="4" y="{height - bottom}">0</text>'
        f'<polyline points="{line}"/>{dots}{ticks}</svg>'
    )
