"""The assignment of jobs to places counted from the end of each slot's queue."""

from __future__ import annotations

import numpy as np

from apportion import _native
from apportion.schedule.trace import Floats

CANNOT = 1e12
"Cost of a place on a system where a job cannot run."


def first_of_each_slot(seconds: Floats, age: Floats) -> list[tuple[int, int]]:
    """Which job each slot runs first, when the sum of completions is least: pairs of job and slot.

    Args:
        seconds: (n, slots); from `CANNOT` on, the job cannot run there.
        age: (n,) seconds since arrival.
    """
    slots = seconds.shape[1]
    columns = _native.least_completions(np.ascontiguousarray(seconds), np.ascontiguousarray(age, np.float64))
    first: dict[int, tuple[int, int]] = {}
    for job, column in enumerate(columns.tolist()):
        place, slot = divmod(column, slots)
        if seconds[job, slot] < CANNOT and place >= first.get(slot, (-1, 0))[0]:
            first[slot] = (place, job)
    return [(job, slot) for slot, (_, job) in sorted(first.items())]
