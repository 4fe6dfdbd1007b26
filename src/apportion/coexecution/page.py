"""A run as one HTML file that needs nothing else: verdict, split, timeline, alternatives, curve of cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from apportion.coexecution.compare import Comparison
from apportion.runtime.base import DeviceInfo
from apportion.runtime.plan import DeviceTime

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
_PHASES = (("upload", "#9fc5e8"), ("kernel", "#3d6fa5"), ("download", "#f6b26b"), ("merge", "#93a84d"))
_WIDTH = 720
_STYLE = """
:root { --ink: #1d2129; --soft: #667; --line: #dde; --paper: #fff; --card: #f6f7fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9ebf0; --soft: #9aa; --line: #3a3f4b; --paper: #15181e; --card: #1e222b }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 50rem; margin: 2.5rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--paper) }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem }
.sub { color: var(--soft); margin: .2rem 0 1.4rem }
.verdict { display: flex; gap: 1rem; flex-wrap: wrap }
.verdict div { background: var(--card); border-radius: 10px; padding: .8rem 1.1rem; flex: 1 1 9rem }
.verdict b { display: block; font-size: 1.55rem; line-height: 1.2 } .verdict span { color: var(--soft) }
.good { color: #1d8a4e } .bad { color: #c4352b }
table { border-collapse: collapse; width: 100%; font-size: .95rem }
td, th { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: var(--ink) }
svg .soft { fill: var(--soft) }
.axis { stroke: var(--line) } .key { color: var(--soft); font-size: .9rem } .key i { display: inline-block;
       width: .8rem; height: .8rem; border-radius: 2px; margin: 0 .35rem 0 .9rem; vertical-align: -1px }
"""


def page(comparison: Comparison, devices: Sequence[DeviceInfo]) -> str:
    """The report of one run."""
    execution = comparison.execution
    title = escape(f"{comparison.kernel} on {', '.join(info.id for info in devices)}")
    colours = {info.id: _COLOURS[number % len(_COLOURS)] for number, info in enumerate(devices)}
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style>',
        f"<h1>{title}</h1>",
        f'<p class="sub">{comparison.work_items:,} work-items under the policy '
        f"<code>{escape(execution.policy)}</code>: {escape(execution.reason)}.</p>",
        _verdict(comparison),
        "<h2>Who did how much</h2>",
        _split_bar(execution.split, colours),
        "<h2>When</h2>",
        _timeline(execution.outcome.devices, execution.outcome.merge_seconds, execution.outcome.seconds),
        "<h2>Against the alternatives</h2>",
        _bars(comparison, colours),
        _curve(comparison, devices[0].id) if comparison.curve else "",
        "<h2>How results were put together</h2>",
        _table(("argument", "merge"), list(execution.merge.items())),
        "<h2>The devices</h2>",
        _table(
            ("device", "share", "alone, ms", "predicted, ms", "what it is"),
            [_device(info, comparison) for info in devices],
            numbers=(1, 2, 3),
        ),
        _predicted(comparison),
        "</html>",
    ]
    return "\n".join(part for part in parts if part)


def _verdict(comparison: Comparison) -> str:
    execution = comparison.execution
    cards = [(f"{execution.seconds * 1e3:.3f} ms", f"median of {len(comparison.milliseconds)} runs", "")]
    if comparison.speedup is not None:
        best = min(execution.alone, key=lambda name: execution.alone[name])
        kind = "good" if comparison.speedup >= 1.02 else "bad" if comparison.speedup < 0.95 else ""
        cards.append((f"{comparison.speedup:.2f} ×", f"the speed of {best} alone", kind))
    if comparison.efficiency is not None:
        kind = "good" if comparison.efficiency >= 0.95 else "bad" if comparison.efficiency < 0.85 else ""
        cards.append((f"{comparison.efficiency:.0%}", "of the best measured cut's speed", kind))
    if execution.verified:
        cards.append(("verified", "compared with another compiler's result", "good"))
    else:
        cards.append(("not verified", "nothing was compared", "bad"))
    if execution.conflicts:
        cards.append((str(execution.conflicts), "elements that two devices wrote differently", "bad"))
    said = "".join(
        f'<div><b class="{kind}">{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what, kind in cards
    )
    return f'<div class="verdict">{said}</div>'


def _split_bar(split: Mapping[str, float], colours: Mapping[str, str]) -> str:
    x, drawn = 0.0, []
    for name, share in split.items():
        width = share * _WIDTH
        if width <= 0:
            continue
        label = f"{name} {share:.1%}"
        drawn.append(
            f'<rect x="{x:.1f}" y="0" width="{width:.1f}" height="38" fill="{colours[name]}"><title>'
            f"{escape(label)}</title></rect>"
        )
        if width > 8 * len(label):
            drawn.append(
                f'<text x="{x + 8:.1f}" y="24" style="fill:#fff;font-weight:600">{escape(label)}</text>'
            )
        x += width
    keys = "".join(
        f'<i style="background:{colours[name]}"></i>{escape(name)} {share:.1%}'
        for name, share in split.items()
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} 38" role="img" aria-label="the split">{"".join(drawn)}</svg>'
        f'<div class="key">{keys}</div>'
    )


def _timeline(times: Sequence[DeviceTime], merge_seconds: float, seconds: float) -> str:
    """Each device's upload, kernel and download, and the merge after the last, over the launch's time."""
    left, row = 70, 30
    scale = (_WIDTH - left - 10) / max(seconds, 1e-9)
    colours = dict(_PHASES)
    height = row * (len(times) + (merge_seconds > 0)) + 26
    drawn = []

    def bar(y: float, phase: str, start: float, length: float) -> None:
        if length > 0:
            drawn.append(
                f'<rect x="{left + start * scale:.1f}" y="{y}" width="{max(length * scale, 0.5):.1f}" '
                f'height="{row - 10}" fill="{colours[phase]}">'
                f"<title>{phase}: {length * 1e3:.3f} ms</title></rect>"
            )

    for number, time in enumerate(times):
        y = number * row + 4
        drawn.append(f'<text x="0" y="{y + 15}">{escape(time.device)}</text>')
        at = time.began
        for phase, length in (("upload", time.upload), ("kernel", time.kernel), ("download", time.download)):
            bar(y, phase, at, length)
            at += length
    if merge_seconds > 0:
        y = len(times) * row + 4
        drawn.append(f'<text x="0" y="{y + 15}">merge</text>')
        bar(y, "merge", seconds - merge_seconds, merge_seconds)
    base = height - 22
    drawn.append(f'<line class="axis" x1="{left}" y1="{base}" x2="{_WIDTH - 10}" y2="{base}"/>')
    for quarter in range(5):
        x = left + quarter / 4 * (_WIDTH - left - 10)
        anchor = "end" if quarter == 4 else "middle"
        label = f"{quarter / 4 * seconds * 1e3:.3g} ms"
        drawn.append(f'<text class="soft" x="{x:.0f}" y="{height - 6}" text-anchor="{anchor}">{label}</text>')
    keys = "".join(f'<i style="background:{colour}"></i>{phase}' for phase, colour in _PHASES)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline">{"".join(drawn)}</svg>'
        f'<div class="key">{keys} &nbsp; (of the last run)</div>'
    )


def _bars(comparison: Comparison, colours: Mapping[str, str]) -> str:
    execution = comparison.execution
    rows = [
        (f"{name} alone", seconds * 1e3, colours.get(name, "#888"))
        for name, seconds in execution.alone.items()
    ]
    rows.append((f"as chosen ({execution.policy})", execution.seconds * 1e3, "#222"))
    if comparison.curve:
        share = min(comparison.curve, key=lambda cut: comparison.curve[cut])
        rows.append((f"best measured cut ({share:.3g})", comparison.curve[share], "#228833"))
    most = max(value for _, value, _ in rows)
    left, height = 240, 26
    drawn = []
    for number, (label, value, colour) in enumerate(rows):
        y = number * height
        width = (_WIDTH - left - 100) * value / most
        fill = "var(--ink)" if colour == "#222" else colour
        drawn.append(
            f'<text x="0" y="{y + 16}">{escape(label)}</text>'
            f'<rect x="{left}" y="{y + 4}" width="{max(width, 1):.1f}" height="16" style="fill:{fill}"/>'
            f'<text x="{left + width + 6:.1f}" y="{y + 16}">{value:.3f} ms</text>'
        )
    total = len(rows) * height
    return f'<svg viewBox="0 0 {_WIDTH} {total}" role="img" aria-label="alternatives">{"".join(drawn)}</svg>'


def _curve(comparison: Comparison, first: str) -> str:
    """Time over the share of the first device, as an inline drawing; where the policy came to is marked."""
    curve = comparison.curve
    height, left, bottom = 260, 60, 30
    chosen = comparison.execution.split.get(first, 0.0), comparison.execution.seconds * 1e3
    most = max(*curve.values(), chosen[1]) * 1.05

    def place(share: float, milliseconds: float) -> tuple[float, float]:
        return left + share * (_WIDTH - left - 10), (height - bottom) * (1 - milliseconds / most)

    best = min(curve, key=lambda share: curve[share])
    points = {share: place(share, milliseconds) for share, milliseconds in sorted(curve.items())}
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points.values())
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"#228833" if share == best else "#4477aa"}"><title>'
        f"{share:.3f}: {curve[share]:.3f} ms</title></circle>"
        for share, (x, y) in points.items()
    )
    x, y = place(*chosen)
    mark = (
        f'<path d="M{x:.1f},{y - 8:.1f} l8,8 l-8,8 l-8,-8 z" fill="#ee6677"><title>as chosen: '
        f"{chosen[0]:.3f}, {chosen[1]:.3f} ms</title></path>"
    )
    ticks = "".join(
        f'<text class="soft" x="{place(quarter / 4, 0)[0]:.0f}" y="{height - 8}" '
        f'text-anchor="{"end" if quarter == 4 else "middle"}">{quarter * 25} %</text>'
        for quarter in range(5)
    )
    return (
        f"<h2>Milliseconds over the share of {escape(first)}</h2>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="time over share">'
        f'<line class="axis" x1="{left}" y1="{height - bottom}" x2="{_WIDTH}" y2="{height - bottom}"/>'
        f'<text class="soft" x="4" y="14">{most:.3g} ms</text>'
        f'<text class="soft" x="4" y="{height - bottom}">0</text>'
        f'<polyline points="{line}" fill="none" stroke="#4477aa" stroke-width="2"/>{dots}{mark}{ticks}</svg>'
        '<div class="key"><i style="background:#4477aa"></i>measured cuts'
        '<i style="background:#228833"></i>the best<i style="background:#ee6677"></i>as chosen</div>'
    )


def _device(info: DeviceInfo, comparison: Comparison) -> tuple[str, ...]:
    execution, forecast = comparison.execution, comparison.forecast
    model = forecast.models.get(info.id) if forecast is not None else None
    return (
        info.id,
        f"{execution.split.get(info.id, 0):.1%}",
        f"{execution.alone[info.id] * 1e3:.3f}" if info.id in execution.alone else "",
        f"{model.seconds(1.0) * 1e3:.3f}" if model is not None else "",
        f"{info.name} ({info.platform} {info.driver})",
    )


def _predicted(comparison: Comparison) -> str:
    forecast = comparison.forecast
    if forecast is None:
        return ""
    said = f"Predicted from {forecast.origin}, give or take a factor of {forecast.spread:.2g}."
    return f'<p class="sub">{escape(said)}</p>'


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: tuple[int, ...] = ()) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        kinds = [' class="n"' if place in numbers else "" for place in range(len(values))]
        return "".join(
            f"<{tag}{kind}>{escape(value)}</{tag}>" for kind, value in zip(kinds, values, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', columns)}</tr>{body}</table>"
