"""A simulation as one HTML file that needs nothing else: Gantt charts, queues, use of systems, completion
curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from apportion.report import html
from apportion.report.charts import curves, plain_number
from apportion.report.numbers import in_time
from apportion.report.svg import colour, drawing, rect, text
from apportion.report.tabular import html_table
from apportion.schedule.simulate import SimulatedPolicy
from apportion.schedule.trace import Floats, JobTrace

WIDTH, LEFT = 720, 70
MOST_BARS = 4000
"Jobs of a Gantt chart; of more, every n-th is drawn and the chart says so."
POINTS = 240
SHOWN = ("makespan_s", "avg_jct_s", "p95_jct_s", "avg_wait_s", "avg_bounded_slowdown",
         "avg_bounded_slowdown_fastest", "utilisation", "useful_work", "fairness_jain", "placement_regret",
         "killed", "fallback")  # fmt: skip


def page_of(trace: JobTrace, results: Sequence[SimulatedPolicy]) -> str:
    """The report of the policies side by side."""
    bound = results[0].summary.lp_bound_s
    shortest = f" No schedule is shorter than {bound:,.0f} s." if bound is not None else ""
    slots = ", ".join(f"{system.name} ({system.slots} slots)" for system in trace.systems)
    rows = [
        [result.summary.policy, *(plain_number(getattr(result.summary, name)) for name in SHOWN)]
        for result in results
    ]
    parts = [
        html.paragraph(f"{len(trace):,} jobs on {slots}.{shortest}"),
        html_table(["policy", *(name.replace("_", " ") for name in SHOWN)], rows, align="lr"),
    ]
    for title, curve, up in (
        ("Completed jobs", _completed, "jobs completed"),
        ("Waiting jobs", queue_of, "jobs waiting"),
        ("Time to completion", _distribution, "part of the jobs"),
    ):
        lines = {result.summary.policy: curve(trace, result) for result in results}
        parts += [html.heading(title), _curves(lines, up)]
    for result in results:
        parts += [html.heading(result.summary.policy), _gantt(trace, result), _use(trace, result)]
    return html.page("Scheduling policies", parts)


def _curves(lines: Mapping[str, tuple[Floats, Floats]], up: str) -> str:
    points = {name: list(zip(x.tolist(), y.tolist(), strict=True)) for name, (x, y) in lines.items()}
    return curves(points, across="time", up=up, across_words=in_time)


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
            fill, tip = (
                colour(int(trace.program[job])),
                f"{trace.job[job]}: {in_time(begun)} to {in_time(end)}",
            )
            for first, count in _runs(free):
                marks.append(
                    rect(
                        LEFT + begun * scale, f"{top + first * unit:.2f}", max((end - begun) * scale, 0.3),
                        f"{max(count * unit * 0.94, 0.2):.2f}", fill, tip=tip,
                    )
                )  # fmt: skip
        marks.append(text(LEFT - 4, top + tall / 2, system.name, anchor="end"))
    height = len(trace.systems) * (tall + 8)
    marks.append(text(WIDTH, height + 12, in_time(last), anchor="end", class_="soft"))
    said = "" if every == 1 else html.paragraph(f"One job in {every} is drawn.")
    if result.summary.policy and schedule.rounds:
        said += html.paragraph("Jobs ran in slices; a bar reaches from a job's first to its last.")
    return drawing(WIDTH, height + 16, marks, label="Gantt chart", paper=None) + said


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
    used_of = {}
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
        used_of[system.name] = ((edges[:-1] + edges[1:]) / 2 - edges[0], used)
    return _curves(used_of, "part of the slots in use")
