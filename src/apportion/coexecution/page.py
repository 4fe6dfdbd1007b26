"""A run as one HTML file that needs nothing else: verdict, split, timeline, alternatives, curve of cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from apportion.coexecution.compare import Comparison
from apportion.report import html
from apportion.report.charts import bars, curves
from apportion.report.svg import AXIS, colour, drawing, path, rect, text
from apportion.report.tabular import html_table
from apportion.runtime.base import DeviceInfo
from apportion.runtime.plan import DeviceTime

_PHASES = {"upload": "#9fc5e8", "kernel": "#3d6fa5", "download": "#f6b26b", "merge": "#93a84d"}
_WIDTH = 720


def page(comparison: Comparison, devices: Sequence[DeviceInfo]) -> str:
    """The report of one run."""
    execution = comparison.execution
    colours = {info.id: colour(number) for number, info in enumerate(devices)}
    return html.page(
        f"{comparison.kernel} on {', '.join(info.id for info in devices)}",
        [
            f"<p>{comparison.work_items:,} work-items under the policy "
            f"<code>{escape(execution.policy)}</code>: {escape(execution.reason)}.</p>",
            _verdict(comparison),
            html.heading("Who did how much"),
            _split_bar(execution.split, colours),
            html.heading("When"),
            _timeline(execution.outcome.devices, execution.outcome.merge_seconds, execution.outcome.seconds),
            html.heading("Against the alternatives"),
            _bars(comparison, colours),
            _curve(comparison, devices[0].id) if comparison.curve else "",
            html.heading("How results were put together"),
            html_table(("argument", "merge"), list(execution.merge.items())),
            html.heading("The devices"),
            html_table(
                ("device", "share", "alone, ms", "predicted, ms", "what it is"),
                [_device(info, comparison) for info in devices],
                align="lrrrl",
            ),
            _predicted(comparison),
        ],
    )


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
    return f'<div class="cards">{said}</div>'


def _split_bar(split: Mapping[str, float], colours: Mapping[str, str]) -> str:
    x, drawn = 0.0, []
    for name, share in split.items():
        width, label = share * _WIDTH, f"{name} {share:.1%}"
        if width > 0:
            drawn.append(rect(x, 0, width, 38, colours[name], tip=label))
        if width > 8 * len(label):
            drawn.append(text(x + 8, 24, label, style="fill:#fff;font-weight:600"))
        x += width
    keys = [(colours[name], f"{name} {share:.1%}") for name, share in split.items()]
    return drawing(_WIDTH, 38, drawn, label="the split", paper=None) + html.key(keys)


def _timeline(times: Sequence[DeviceTime], merge_seconds: float, seconds: float) -> str:
    """Each device's upload, kernel and download, and the merge after the last, over the launch's time."""
    left, row = 70, 30
    inner = _WIDTH - left - 10
    lines = [
        (time.device, time.began, {"upload": time.upload, "kernel": time.kernel, "download": time.download})
        for time in times
    ]
    if merge_seconds > 0:
        lines.append(("merge", seconds - merge_seconds, {"merge": merge_seconds}))
    drawn = []
    for number, (name, at, phases) in enumerate(lines):
        y = number * row + 4
        drawn.append(text(0, y + 15, name))
        for phase, length in phases.items():
            if length > 0:
                x, width = (inner * part / max(seconds, 1e-9) for part in (at, length))
                tip = f"{phase}: {length * 1e3:.3f} ms"
                drawn.append(rect(left + x, y, max(width, 0.5), row - 10, _PHASES[phase], tip=tip))
            at += length
    base = len(lines) * row + 4
    drawn.append(path(f"M{left} {base}H{left + inner}", AXIS))
    for quarter in range(5):
        x, anchor = left + quarter / 4 * inner, "end" if quarter == 4 else "middle"
        label = f"{quarter / 4 * seconds * 1e3:.3g} ms"
        drawn.append(text(x, base + 16, label, anchor=anchor, class_="soft"))
    keys = [(fill, phase) for phase, fill in _PHASES.items()]
    return drawing(_WIDTH, base + 22, drawn, label="timeline", paper=None) + html.key(
        keys, "(of the last run)"
    )


def _bars(comparison: Comparison, colours: Mapping[str, str]) -> str:
    execution = comparison.execution
    rows = [
        (f"{name} alone", seconds * 1e3, colours.get(name, "#888"))
        for name, seconds in execution.alone.items()
    ]
    rows.append((f"as chosen ({execution.policy})", execution.seconds * 1e3, "#ee6677"))
    if comparison.curve:
        share = min(comparison.curve, key=lambda cut: comparison.curve[cut])
        rows.append((f"best measured cut ({share:.3g})", comparison.curve[share], "#228833"))
    return bars(
        [(name, value, f"{value:.3f} ms") for name, value, _ in rows], colours=[fill for _, _, fill in rows]
    )


def _curve(comparison: Comparison, first: str) -> str:
    """Time over the share of the first device; the best cut and where the policy came to are marked."""
    execution, points = comparison.execution, sorted(comparison.curve.items())
    return html.heading(f"Milliseconds over the share of {first}") + curves(
        {"measured cuts": points},
        dots={
            "as chosen": [(execution.split.get(first, 0.0), execution.seconds * 1e3)],
            "the best": [min(points, key=lambda point: point[1])],
        },
        across=f"share of {first}",
        up="milliseconds",
        across_words="{:.0%}".format,
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
    return html.paragraph(said)
