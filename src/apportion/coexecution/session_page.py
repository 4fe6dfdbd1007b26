"""A session as one HTML file that needs nothing else: where kernels ran and why, and when, with copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from apportion.report import html
from apportion.report.svg import AXIS, drawing, path, rect, text
from apportion.report.tabular import html_table

if TYPE_CHECKING:
    from apportion.coexecution.session import Decision, TimelineEvent

_LAUNCH, _TO_DEVICE, _FROM_DEVICE = "#3d6fa5", "#9fc5e8", "#f6b26b"
_WIDTH, _LEFT, _ROW = 720, 70, 30
_MOST = 3000
"Events that are drawn, the latest; more would be lines without width."


def session_page(decisions: Sequence[Decision], events: Sequence[TimelineEvent]) -> str:
    """The report of a session."""
    launches = sum(each.launches for each in decisions)
    copied = sum(event.nbytes for event in events)
    rows = [
        (
            each.kernel, f"{each.work_items:,}", each.device, f"{each.launches:,}", each.reason,
            ", ".join(f"{name} {taken:.3g}" for name, taken in each.milliseconds.items()),
            ", ".join(each.measured),
        )
        for each in decisions
    ]  # fmt: skip
    columns = ("kernel", "work-items", "device", "launches", "why", "believed, ms", "measured on")
    return html.page(
        f"A session of {launches:,} launches",
        [
            html.heading("Where kernels run"),
            f'<div class="scroll">{html_table(columns, rows, align="lrlrlll")}</div>',
            html.heading("When"),
            _drawn(list(events)[-_MOST:]),
            html.paragraph(f"{copied:,} bytes were copied in what the timeline holds.")
            if events
            else html.paragraph("Nothing is drawn: timeline() begins to keep it when it is first called."),
        ],
    )


def _drawn(events: Sequence[TimelineEvent]) -> str:
    """A line for each device, with launches and copies over time."""
    if not events:
        return ""
    first, last = min(event.began for event in events), max(event.ended for event in events)
    inner, length = _WIDTH - _LEFT - 10, max(last - first, 1e-9)
    devices = list(dict.fromkeys(event.device for event in events))
    parts = [text(0, row * _ROW + 19, name) for row, name in enumerate(devices)]
    for event in events:
        fill = _LAUNCH if "→" not in event.what and "←" not in event.what else _TO_DEVICE
        fill = _FROM_DEVICE if "←" in event.what else fill
        size = f", {event.nbytes:,} bytes" if event.nbytes else ""
        x, width = (inner * part / length for part in (event.began - first, event.ended - event.began))
        parts.append(rect(
            _LEFT + x, devices.index(event.device) * _ROW + 4, max(width, 0.3), _ROW - 10, fill,
            tip=f"{event.what}: {event.ended - event.began:.3f} ms{size}",
        ))  # fmt: skip
    base = len(devices) * _ROW + 4
    parts.append(path(f"M{_LEFT} {base}H{_LEFT + inner}", AXIS))
    for quarter in range(5):
        anchor = "end" if quarter == 4 else "middle"
        at = f"{quarter / 4 * length:.3g} ms"
        parts.append(text(_LEFT + quarter / 4 * inner, base + 16, at, anchor=anchor, class_="soft"))
    keys = [(_LAUNCH, "launch"), (_TO_DEVICE, "copy to the device"), (_FROM_DEVICE, "copy from it")]
    return drawing(_WIDTH, base + 22, parts, label="timeline", paper=None) + html.key(keys)
