"""AlloX: the least sum of completions, by assigning jobs to places counted from the end of each slot's
queue."""

from __future__ import annotations

import numpy as np

from apportion.errors import InvalidSetting
from apportion.schedule.assignment import CANNOT, first_of_each_slot
from apportion.schedule.choices import QueueState, by_choices
from apportion.schedule.problem import Schedule, SchedulingProblem

MOST_JOBS, MOST_SLOTS = 150, 40
"Waiting jobs, oldest first, and free slots of a system that one assignment looks at: it costs n² · slots."


def allox(problem: SchedulingProblem) -> Schedule:
    """For jobs of one slot (Le et al., EuroSys 2020)."""
    problem.need_times("allox")
    trace, believed = problem.trace, problem.beliefs.seconds
    if (trace.width > 1).any():
        raise InvalidSetting("allox knows jobs of one slot only, and this trace has wider ones")

    def choose(state: QueueState) -> list[tuple[int, int]]:
        jobs = state.waiting[:MOST_JOBS]
        slots = [at for at, free in enumerate(state.free.tolist()) for _ in range(min(free, MOST_SLOTS))]
        seconds = np.where(np.isfinite(believed[jobs][:, slots]), believed[jobs][:, slots], CANNOT)
        found = first_of_each_slot(seconds, state.now - trace.arrival[jobs])
        return [(jobs[job], slots[slot]) for job, slot in found]

    return by_choices(problem, choose)
