"""The least makespan: a linear program says how much of each job belongs where, list scheduling makes it
whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.schedule.problem import Schedule, SchedulingProblem
from apportion.schedule.programs import MOST_EXACT, UnsolvedProgram, least_makespan
from apportion.schedule.queues import by_events
from apportion.schedule.trace import Codes, Floats

MOVES = 3000
"Moves of a job to another system, or before another, that are tried on the predicted schedule."


def makespan(problem: SchedulingProblem) -> Schedule:
    """For a campaign that must end. Jobs that are all there at once are planned by predicted times: the
    systems of the linear program, the longest first, then moves away from the system that ends last. Jobs
    that arrive one by one are bound late, the longest first."""
    problem.need_times("makespan")
    trace, believed = problem.trace, problem.beliefs.seconds
    least = believed.min(axis=1)
    longest_first = -(least * trace.width)
    if trace.arrival[-1] > trace.arrival[0] or len(trace) > MOST_EXACT:
        return by_events(problem, late=True, key=longest_first, backfill="conservative")
    notes: tuple[str, ...] = ()
    try:
        where = least_makespan(believed, trace.width, trace.slots).share
    except UnsolvedProgram as error:
        where, notes = 1 / believed, (f"{error}; each job goes to its fastest system first",)
    planned = replace(trace, seconds=np.where(np.isfinite(believed), believed, np.inf), limit=None)
    plan = _Plan(replace(problem, trace=planned))
    only = (where / believed).argmax(axis=1).astype(np.int32)
    key = -believed[np.arange(len(trace)), only] * trace.width
    only, key = plan.improved(only, key)
    return replace(by_events(problem, only, key=key, backfill="easy", depth=0), notes=notes)


class _Plan:
    """A schedule by predicted times, made better move by move. The same moves for the same seed."""

    def __init__(self, problem: SchedulingProblem) -> None:
        self.problem = problem
        self.drawing = np.random.default_rng([problem.settings.seed, 30])

    def improved(self, only: Codes, key: Floats) -> tuple[Codes, Floats]:
        trace, believed = self.problem.trace, self.problem.beliefs.seconds
        best = self._run(only, key)
        for _ in range(MOVES):
            last = best.end.max()
            if len(trace) < 2:
                break
            tried, order = only.copy(), key.copy()
            ends = np.array([best.end[only == at].max(initial=0.0) for at in range(len(trace.systems))])
            worst = int(ends.argmax())
            job = int(self.drawing.choice(np.flatnonzero(only == worst)))
            others = np.flatnonzero(np.isfinite(believed[job]) & (np.arange(len(ends)) != worst))
            if len(others) and self.drawing.random() < MOVED:
                room = np.maximum(last - ends[others], 1e-9) * trace.slots[others]
                cost = believed[job, others] / believed[job, worst]
                at = int(
                    self.drawing.choice(others, p=(weight := (room + room.max() * 0.1) / cost) / weight.sum())
                )
                tried[job] = at
                order[job] = -believed[job, at] * trace.width[job]
                if self.drawing.random() < SWAPPED:  # another comes in its place
                    back = np.flatnonzero((only == at) & np.isfinite(believed[:, worst]))
                    if len(back):
                        other = int(self.drawing.choice(back))
                        tried[other] = worst
                        order[other] = -believed[other, worst] * trace.width[other]
            else:
                order[job] = key.min() * self.drawing.random()
            found = self._run(tried, order)
            if _worth(found, only.size) <= _worth(best, only.size):
                only, key, best = tried, order, found
        return only, key

    def _run(self, only: Codes, key: Floats) -> Schedule:
        return by_events(self.problem, only, key=key, backfill="easy", depth=0)


MOVED, SWAPPED = 0.85, 0.5
"How often a move is to another system rather than in the order, and how often a job comes back in exchange."


def _worth(schedule: Schedule, jobs: int) -> float:
    """The makespan; among equal ones, the sum of ends a little."""
    return float(schedule.end.max() * (1 + 1e-9) + 1e-7 * schedule.end.sum() / jobs)
