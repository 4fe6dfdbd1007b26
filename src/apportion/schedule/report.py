"""A simulation as one HTML file that needs nothing else: Gantt charts, queues, use of systems, completion
curves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from apportion.schedule.metrics import ScheduleSummary
from apportion.schedule.simulate import SimulatedPolicy
from apportion.schedule.trace import Floats, JobTrace

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 56, 28
MOST_BARS = 4000
"Jobs of a Gantt chart; of more, every n-th is drawn and the chart says so."
POINTS = 240
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
SHOWN = ("makespan_s", "avg_jct_s", "p95_jct_s", "avg_wait_s", "avg_bounded_slowdown",
         "avg_bounded_slowdown_fastest", "utilisation", "useful_work", "fairness_jain", "placement_regret",
         "killed", "fallback")  # fmt: skip
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0
1rem;color:#222;background:#fff}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid
#ddd}td:first-child,th:first-child{text-align:left}
svg{width:100%;height:auto}svg text{font-size:11px;fill:#555}.scroll{overflow-x:auto}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}svg
text{fill:#aaa}td,th{border-color:#444}}
"""


def page_of(trace: JobTrace, results: Sequence[SimulatedPolicy]) -> str:
    """The report of the policies side by side."""
    names = [result.summary.policy for result in results]
    bound = results[0].summary.lp_bound_s
    shortest = f" No schedule is shorter than {bound:,.0f} s." if bound is not None else ""
    slots = ", ".join(f"{system.name} ({system.slots} slots)" for system in trace.systems)
    parts = [
        f"<p>{len(trace):,} jobs on {escape(slots)}.{shortest}</p>",
        _table([result.summary for result in results]),
        "<h2>Completed jobs</h2>",
        _curves(names, [_completed(trace, result) for result in results], "jobs completed", "time"),
        "<h2>Waiting jobs</h2>",
        _curves(names, [queue_of(trace, result) for result in results], "jobs waiting", "time"),
        "<h2>Time to completion</h2>",
        _curves(names, [_distribution(trace, result) for result in results], "part of the jobs", "within"),
    ]
    for result in results:
        parts += [f"<h2>{escape(result.summary.policy)}</h2>", _gantt(trace, result), _use(trace, result)]
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Scheduling policies</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><h1>Scheduling policies</h1>\n{body}\n</body></html>\n"
    )


def _table(summaries: Sequence[ScheduleSummary]) -> str:
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in SHOWN)
    rows = []
    for one in summaries:
        cells = "".join(f"<td>{_number(getattr(one, name))}</td>" for name in SHOWN)
        rows.append(f"<tr><td>{escape(one.policy)}</td>{cells}</tr>")
    return f'<div class="scroll"><table><tr><th>policy</th>{head}</tr>{"".join(rows)}</table></div>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3f}"


def _completed(trace: JobTrace, result: SimulatedPolicy) -> tuple[Floats, Floats]:
    ends = np.sort(result.schedule.end)
    return _thinned(np.concatenate(([0.0], ends)), np.arange(len(ends) + 1.0))


def queue_of(trace: JobTrace, result: SimulatedPolicy) -> tuple[Floats, Floats]:
    """Seconds, and how many jobs wait from then on."""
    times = np.concatenate([trace.arrival, result.schedule.start])
    change = np.concatenate([np.ones(len(trace)), -np.ones(len(trace))])
    order = np.lexsort((-change, times))
    return _thinned(times[order], np.cumsum(change[order]))


def _distribution(trace: JobTrace, result: SimulatedPolicy) -> tuple[Floats, Floats]:
    taken = np.sort(result.schedule.end - trace.arrival)
    return _thinned(taken, np.arange(1, len(taken) + 1) / len(taken))


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int))
    return x[kept], y[kept]


def _curves(names: Sequence[str], curves: Sequence[tuple[Floats, Floats]], up: str, along: str) -> str:
    right = max(float(x[-1]) for x, _ in curves) or 1.0
    top = max(float(y.max()) for _, y in curves) or 1.0
    marks = [_axes(right, top, up, along)]
    for number, (name, (x, y)) in enumerate(zip(names, curves, strict=True)):
        points = " ".join(
            f"{LEFT + (WIDTH - LEFT) * a / right:.1f},{HEIGHT * (1 - b / top):.1f}"
            for a, b in zip(x, y, strict=True)
        )
        colour = COLOURS[number % len(COLOURS)]
        marks.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}">'
            f"<title>{escape(name)}</title></polyline>"
        )
        marks.append(
            f'<rect x="{LEFT + 110 * (number % 6)}" y="{HEIGHT + BOTTOM + 14 * (number // 6)}" width="9" '
            f'height="9" fill="{colour}"/><text x="{LEFT + 13 + 110 * (number % 6)}" '
            f'y="{HEIGHT + BOTTOM + 9 + 14 * (number // 6)}">{escape(name)}</text>'
        )
    return _drawing(HEIGHT + BOTTOM + 14 * (1 + (len(names) - 1) // 6) + 4, marks)


def _axes(right: float, top: float, up: str, along: str) -> str:
    marks = [f'<path d="M{LEFT} 0V{HEIGHT}H{WIDTH}" fill="none" stroke="#999"/>']
    for part in (0.25, 0.5, 0.75, 1.0):
        x, y = LEFT + (WIDTH - LEFT) * part, HEIGHT * (1 - part)
        anchor = "end" if part == 1 else "middle"
        marks.append(
            f'<text x="{x:.0f}" y="{HEIGHT + 13}" text-anchor="{anchor}">{_span(right * part)}</text>'
        )
        marks.append(f'<text x="{LEFT - 4}" y="{y + 9:.0f}" text-anchor="end">{_number(top * part)}</text>')
    marks.append(
        f'<text x="{LEFT}" y="{HEIGHT + 13}">{along} →</text><text x="{LEFT + 6}" y="11">{up}</text>'
    )
    return "".join(marks)


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _gantt(trace: JobTrace, result: SimulatedPolicy) -> str:
    """A bar for each job, in the lowest slots of its system that are free."""
    schedule = result.schedule
    every = -(-len(trace) // MOST_BARS)
    last = float(schedule.end.max()) or 1.0
    scale, tall = (WIDTH - LEFT) / last, 90.0
    marks = []
    for at, system in enumerate(trace.systems):
        top = at * (tall + 8)
        rows: list[float] = [0.0] * min(system.slots, 400)
        unit = tall / len(rows)
        jobs = np.flatnonzero(schedule.system == at)[::every]
        for job in jobs[np.argsort(schedule.start[jobs], kind="stable")].tolist():
            width = min(len(rows), max(1, round(int(trace.width[job]) * len(rows) / system.slots)))
            begun, end = float(schedule.start[job]), float(schedule.end[job])
            free = [row for row, until in enumerate(rows) if until <= begun][:width]
            free = free or [min(range(len(rows)), key=rows.__getitem__)]
            for row in free:
                rows[row] = end
            colour = COLOURS[int(trace.program[job]) % len(COLOURS)]
            for first, count in _runs(free):
                marks.append(
                    f'<rect x="{LEFT + begun * scale:.1f}" y="{top + first * unit:.2f}" '
                    f'width="{max((end - begun) * scale, 0.3):.1f}" '
                    f'height="{max(count * unit * 0.94, 0.2):.2f}"'
                    f' fill="{colour}"><title>{escape(str(trace.job[job]))}: {_span(begun)} to {_span(end)}'
                    "</title></rect>"
                )
        marks.append(
            f'<text x="{LEFT - 4}" y="{top + tall / 2:.0f}" text-anchor="end">{escape(system.name)}</text>'
        )
    height = len(trace.systems) * (tall + 8)
    marks.append(f'<text x="{WIDTH}" y="{height + 12:.0f}" text-anchor="end">{_span(last)}</text>')
    said = "" if every == 1 else f"<p>One job in {every} is drawn.</p>"
    if result.summary.policy and schedule.rounds:
        said += "<p>Jobs ran in slices; a bar reaches from a job's first to its last.</p>"
    return _drawing(height + 16, marks) + said


def _runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and runs[-1][0] + runs[-1][1] == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs


def _use(trace: JobTrace, result: SimulatedPolicy) -> str:
    """The part of each system's slots that were in use, over time."""
    schedule = result.schedule
    edges = np.linspace(float(trace.arrival[0]), float(schedule.end.max()), POINTS + 1)
    curves = []
    for at, system in enumerate(trace.systems):
        jobs = np.flatnonzero(schedule.ran[:, at] > 0)
        length = np.maximum(schedule.end[jobs] - schedule.start[jobs], 1e-9)
        weight = trace.width[jobs] * schedule.ran[jobs, at] / length
        # What was used up to an instant, as a sum of ramps; its slope is the use.
        times = np.concatenate([schedule.start[jobs], schedule.end[jobs]])
        change = np.concatenate([weight, -weight])
        order = np.argsort(times, kind="stable")
        times, level = times[order], np.cumsum(change[order])
        total = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(times)))) if len(times) else np.zeros(1)
        times = times if len(times) else np.zeros(1)
        used = np.diff(np.interp(edges, times, total)) / np.maximum(np.diff(edges), 1e-9) / system.slots
        curves.append(((edges[:-1] + edges[1:]) / 2 - edges[0], used))
    return _curves([system.name for system in trace.systems], curves, "part of the slots in use", "time")


def _drawing(height: float, marks: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(marks)}</svg>'
