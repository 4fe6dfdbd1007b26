"""Traces drawn to choose settings on, so that nothing is chosen on Gavel's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from apportion.schedule import (
    JobTrace,
    ScheduleSettings,
    SystemSlots,
    TraceRequest,
    readers,
    simulate,
    with_errors,
)
from apportion.schedule.readers.gavel import read_speeds
from apportion.schedule.trace import codes_of

TYPES = ("v100", "p100", "k80")
HOUR = 3600.0
SIGMAS = (0.5, 1.0)
DRAWS = range(100, 110)
CHANGES: dict[str, dict[str, float]] = {
    "default": {},
    "quantile 0.4": {"quantile": 0.4},
    "quantile 0.6": {"quantile": 0.6},
    "quantile 0.7": {"quantile": 0.7},
    "tie 0.5": {"tie": 0.5},
    "explore 0.01": {"explore": 0.01},
}
"Settings of `careful` that are compared with its default ones."


def like_gavel(
    throughputs: Path, seed: int, jobs: int, slots: Sequence[int], *,
    wide: bool, gap: float = 0.0, heavy: bool = False,
) -> JobTrace:  # fmt: skip
    """Jobs of Gavel's types: 1 to 4 hours each on a V100, or minutes to a week.

    Args:
        gap: mean seconds between arrivals; 0 has all jobs arrive at once.
        heavy: durations with a heavy tail.
    """
    speeds, drawing = read_speeds(throughputs), random.Random(seed)
    able = sorted(
        {(name, width) for (name, width, system), speed in speeds.items() if system == "v100" and speed > 0}
    )
    chosen, seconds, arrival = [], [], [0.0]
    for _ in range(jobs):
        width = drawing.choices([1, 2, 4, 8], [0.7, 0.1, 0.15, 0.05])[0] if wide else 1
        chosen.append(drawing.choice([one for one in able if one[1] == width]))
        if heavy:
            low, high = (1.5, 3.0) if drawing.random() < 0.8 else (3.0, 4.0)
            seconds.append(60 * 10 ** drawing.uniform(low, high))
        else:
            seconds.append(HOUR * drawing.choice([1, 2, 3, 4]))
        arrival.append(arrival[-1] + (drawing.expovariate(1 / gap) if gap else 0.0))
    systems = tuple(SystemSlots(name, count) for name, count in zip(TYPES, slots, strict=True) if count)
    speed = np.array([[speeds.get((*one, system.name), 0.0) for system in systems] for one in chosen])
    steps = np.array(
        [max(1, int(speeds[*one, "v100"] * time)) for one, time in zip(chosen, seconds, strict=True)]
    )
    program, programs = codes_of([name for name, _ in chosen])
    with np.errstate(divide="ignore"):
        times = steps[:, None] / speed
    names: Any = np.arange(jobs)
    widths = np.array([width for _, width in chosen], np.int64)
    return JobTrace(
        systems, names, np.array(arrival[:-1]), widths, times, program, programs, steps=steps, speed=speed
    )


def synthetic(seed: int, jobs: int, load: float, widest: int, slots: int, systems: str = "abcd") -> JobTrace:
    """Jobs of log-normal times over systems of one size."""
    there = tuple(SystemSlots(name, slots) for name in systems)
    trace: JobTrace = readers.load("synthetic")(
        TraceRequest(there, seed=seed, jobs=jobs, load=load, largest_width=widest)
    )
    return trace


def static_traces(throughputs: Path) -> Iterator[tuple[str, JobTrace]]:
    """All jobs there at once."""
    for seed, jobs, slots, wide in (
        (301, 100, (8, 16, 24), True), (302, 200, (12, 12, 12), False), (303, 200, (36, 36, 36), True),
        (304, 60, (8, 4, 12), False), (305, 150, (20, 10, 30), True),
    ):  # fmt: skip
        name = f"{jobs} jobs, {':'.join(map(str, slots))}{', wide' if wide else ''}"
        yield name, like_gavel(throughputs, seed, jobs, slots, wide=wide)
    yield "400 drawn, 4 × 16, wide", synthetic(306, 400, 0.0, 4, 16)
    yield "300 drawn, 3 × 8", synthetic(307, 300, 0.0, 1, 8, "abc")


def more_static_traces(throughputs: Path) -> Iterator[tuple[str, JobTrace]]:
    """For `makespan` alone."""
    for seed, jobs, slots, wide in (
        (321, 30, (2, 2, 2), False), (322, 100, (25, 25, 25), True), (323, 400, (8, 8, 8), True),
        (324, 100, (4, 12, 20), False), (325, 50, (16, 16, 16), True), (326, 100, (10, 0, 20), True),
    ):  # fmt: skip
        name = f"{jobs} jobs, {':'.join(map(str, slots))}{', wide' if wide else ''}"
        yield name, like_gavel(throughputs, seed, jobs, slots, wide=wide)


def traces_with_arrivals(throughputs: Path) -> Iterator[tuple[str, JobTrace]]:
    """Jobs that arrive one by one."""
    yield "200 jobs, arrivals", like_gavel(throughputs, 311, 200, (12, 12, 12), wide=False, gap=500)
    yield "200 jobs, arrivals, wide", like_gavel(throughputs, 312, 200, (36, 36, 36), wide=True, gap=300)
    yield (
        "200 jobs, heavy tail, wide",
        like_gavel(throughputs, 313, 200, (36, 36, 36), wide=True, gap=1500, heavy=True),
    )
    yield (
        "150 jobs, heavy tail",
        like_gavel(throughputs, 314, 150, (16, 16, 16), wide=False, gap=2000, heavy=True),
    )
    yield "2,000 drawn, load 0.6, wide", synthetic(315, 2000, 0.6, 4, 20)
    yield "2,000 drawn, load 0.8", synthetic(316, 2000, 0.8, 1, 20)
    yield "2,000 drawn, load 0.9, wide", synthetic(317, 2000, 0.9, 4, 20)


def settings_compared(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """What changes of `careful`'s settings do, over drawn traces; and `makespan` over the bound."""
    throughputs = folder / "throughputs.csv"
    rows, bounds = [], []
    for name, trace in (*static_traces(throughputs), *traces_with_arrivals(throughputs)):
        true = {one.summary.policy: one.summary for one in simulate(trace, ["careful", "eft"])}
        found: dict[str, list[float]] = {}
        for sigma in SIGMAS:
            for change, settings in CHANGES.items():
                found[f"{change} {sigma:g}"] = _ratio(trace, "careful", sigma, settings, true["careful"])
            found[f"eft {sigma:g}"] = _ratio(trace, "eft", sigma, {}, true["careful"])
        rows.append({"trace": name, "found": found})
        say(f"{name}: careful at sigma 0.5 {found['default 0.5'][1]:.3f} of its oracle's completion")
    for name, trace in (*static_traces(throughputs), *more_static_traces(throughputs)):
        eft, short = (one.summary for one in simulate(trace, ["eft", "makespan"]))
        bound = short.lp_bound_s or 1.0
        bounds.append({"trace": name, "eft": eft.makespan_s / bound, "makespan": short.makespan_s / bound})
    return {"draws": len(DRAWS), "careful": rows, "makespan": bounds}


def _ratio(
    trace: JobTrace, policy: str, sigma: float, settings: dict[str, float], oracle: Any
) -> list[float]:
    """Mean over draws of makespan and mean completion, over those of `careful` with true times."""
    changed = ScheduleSettings(**{**asdict(ScheduleSettings()), **settings})
    drawn = [
        next(simulate(trace, [policy], beliefs=with_errors(trace, sigma, draw), settings=changed)).summary
        for draw in DRAWS
    ]
    return [
        float(np.mean([one.makespan_s for one in drawn])) / oracle.makespan_s,
        float(np.mean([one.avg_jct_s for one in drawn])) / oracle.avg_jct_s,
    ]
