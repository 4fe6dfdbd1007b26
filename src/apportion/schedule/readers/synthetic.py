"""Synthetic jobs: arrivals at an offered load, log-normal times, programs with speeds of their own;
seeded."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.errors import InvalidSetting
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.trace import Codes, Floats, Integers, JobTrace

PROGRAMS = 40
MEDIAN_SECONDS, SPREAD_SECONDS = 600.0, 1.5
"Of the log-normal base times; the spread is of the natural logarithm, as in archives of parallel workloads."
SPREAD_SYSTEMS = 1.0
"Of log2 of a program's time on a system."
HOUR = 3600.0


def read(request: TraceRequest) -> JobTrace:
    """Draw jobs: forty programs, each with its own ratios between the systems."""
    if not request.systems:
        raise InvalidSetting("Synthetic jobs need systems: give --systems NAME=SLOTS …")
    drawing = np.random.default_rng([request.seed, 1])
    ratios = np.exp2(drawing.normal(0, SPREAD_SYSTEMS, (PROGRAMS, len(request.systems))))
    program = drawing.integers(0, PROGRAMS, request.jobs).astype(np.int32)
    base = MEDIAN_SECONDS * np.exp(drawing.normal(0, SPREAD_SECONDS, request.jobs))
    names = tuple(f"program {number}" for number in range(PROGRAMS))
    return drawn_trace(request, base[:, None] * ratios[program], program, names)


def drawn_trace(
    request: TraceRequest, seconds: Floats, program: Codes, programs: tuple[str, ...]
) -> JobTrace:
    """Jobs with these times, given widths and arrivals as the request asks."""
    most = max(system.slots for system in request.systems)
    if request.largest_width > most:
        raise InvalidSetting(f"No system has {request.largest_width} slots; the largest has {most}")
    drawing = np.random.default_rng([request.seed, 2])
    width = drawing.integers(1, request.largest_width + 1, request.jobs)
    slots = np.array([system.slots for system in request.systems])
    here = np.where(width[:, None] <= slots, seconds, np.inf)
    work = float((width * here.min(axis=1)).mean())
    jobs: Any = np.arange(request.jobs)
    arrival = arrivals(request, work, int(slots.sum()))
    return JobTrace(request.systems, jobs, arrival, width.astype(np.int64), here, program, programs)


def arrivals(request: TraceRequest, work: float, slots: int) -> Floats:
    """When jobs arrive: a Poisson process at the offered load, the first at 0; load 0 has all arrive at once.

    Args:
        work: slot-seconds of a job on its fastest system, in the mean.
    """
    if request.load == 0:
        return np.zeros(request.jobs)
    rate = request.load * slots / work
    drawing = np.random.default_rng([request.seed, 3])
    gaps = drawing.exponential(1 / rate, request.jobs)
    gaps[0] = 0
    even = np.cumsum(gaps)
    return _with_cycles(even) if request.cycles else even


def _with_cycles(even: Floats) -> Floats:
    """The same arrivals with rates that follow hours and weekdays, and the same mean rate over a week."""
    hours: Integers = np.arange(24 * 7)
    rate = (1 + 0.6 * np.sin((hours % 24 - 8) / 24 * 2 * np.pi)) * np.where(hours // 24 < 5, 1.0, 0.5)
    rate = rate / rate.mean()
    weeks = int(even[-1] / (HOUR * len(hours))) + 2
    passed = np.concatenate(([0.0], np.cumsum(np.tile(rate, weeks)))) * HOUR
    clock = np.arange(len(passed)) * HOUR
    return np.asarray(np.interp(even, passed, clock))
