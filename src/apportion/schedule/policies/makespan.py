"""The least makespan: a linear program says how much of each job belongs where, list scheduling makes it
whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.schedule.problem import Schedule, SchedulingProblem
from apportion.schedule.programs import MOST_EXACT, UnsolvedProgram, least_makespan
from apportion.schedule.queues import by_events
from apportion.schedule.trace import Codes, Floats


@dataclass(frozen=True)
class MoveSettings:
    """How a planned schedule is made better. Chosen on 13 static traces drawn from Gavel's speeds and from
    log-normal times; none of Gavel's own traces was among them."""

    moves: int = 9000
    "Schedules that are tried, in all."

    turns: int = 3
    "So often the search starts again from the best schedule found."

    wanted: float = 0.9
    "Of the best makespan found: what runs beyond this is to go away, but never beyond the program's bound."

    power: float = 3.0
    "A job counts by its width times the seconds that it ends too late to this power."

    moved: float = 0.85
    "How often a move is to another system, rather than in the order of the queue."

    swapped: float = 0.6
    "How often another job comes back in exchange."


def makespan(problem: SchedulingProblem) -> Schedule:
    """For a campaign that must end. Jobs that are all there at once are planned by predicted times: the
    systems of the linear program, the longest first, then moves of what ends too late. Jobs
    that arrive one by one are bound late, the longest first."""
    problem.need_times("makespan")
    trace, believed = problem.trace, problem.beliefs.seconds
    least = believed.min(axis=1)
    longest_first = -(least * trace.width)
    if trace.arrival[-1] > trace.arrival[0] or len(trace) > MOST_EXACT:
        return by_events(problem, late=True, key=longest_first, backfill="conservative")
    notes: tuple[str, ...] = ()
    try:
        solved = least_makespan(believed, trace.width, trace.slots)
        where, bound = solved.share, solved.optimum
    except UnsolvedProgram as error:
        bound = float(least.max())
        where, notes = 1 / believed, (f"{error}; each job goes to its fastest system first",)
    planned = replace(trace, seconds=np.where(np.isfinite(believed), believed, np.inf), limit=None)
    only = (where / believed).argmax(axis=1).astype(np.int32)
    key = -believed[np.arange(len(trace)), only] * trace.width
    only, key = _Search(replace(problem, trace=planned), bound).improved(only, key)
    return replace(by_events(problem, only, key=key, backfill="easy", depth=0), notes=notes)


@dataclass(frozen=True, eq=False)
class _Plan:
    """Each job's system and place in the order, and the schedule that follows by predicted times."""

    only: Codes
    key: Floats
    schedule: Schedule

    @property
    def makespan(self) -> float:
        return float(self.schedule.end.max())


class _Search:
    """Move by move to a shorter schedule. The same moves for the same seed."""

    def __init__(
        self, problem: SchedulingProblem, bound: float, settings: MoveSettings = MoveSettings()
    ) -> None:
        self.problem, self.bound, self.settings = problem, bound, settings
        self.drawing = np.random.default_rng([problem.settings.seed, 30])

    def improved(self, only: Codes, key: Floats) -> tuple[Codes, Floats]:
        settings = self.settings
        best = self._plan(only, key)
        for _ in range(settings.turns):
            plan, wanted = best, self._wanted(best)
            late = self._lateness(plan, wanted)
            for _ in range(settings.moves // settings.turns):
                if best.makespan <= self.bound * (1 + 1e-6):
                    return best.only, best.key
                tried = self._plan(*self._moved(plan, wanted))
                found = self._lateness(tried, wanted)
                if found > late:
                    continue
                plan, late = tried, found
                if plan.makespan < best.makespan:
                    best, wanted = plan, self._wanted(plan)
                    late = self._lateness(plan, wanted)
        return best.only, best.key

    def _plan(self, only: Codes, key: Floats) -> _Plan:
        return _Plan(only, key, by_events(self.problem, only, key=key, backfill="easy", depth=0))

    def _wanted(self, plan: _Plan) -> float:
        return max(self.bound, self.settings.wanted * plan.makespan)

    def _lateness(self, plan: _Plan, wanted: float) -> float:
        beyond = np.maximum(0.0, plan.schedule.end / wanted - 1) ** self.settings.power
        return float((self.problem.trace.width * beyond).sum())

    def _moved(self, plan: _Plan, wanted: float) -> tuple[Codes, Floats]:
        """A job that ends too late, or one of its system, goes elsewhere or comes earlier."""
        settings, drawing = self.settings, self.drawing
        width, believed = self.problem.trace.width, self.problem.beliefs.seconds
        only, key = plan.only.copy(), plan.key.copy()
        job = int(drawing.choice(np.flatnonzero(plan.schedule.end > wanted)))
        here = int(only[job])
        if drawing.random() < 0.5:
            job = int(drawing.choice(np.flatnonzero(only == here)))
        others = np.flatnonzero(np.isfinite(believed[job]) & (np.arange(believed.shape[1]) != here))
        if not len(others) or drawing.random() >= settings.moved:
            key[job] = key.min() * drawing.random()
            return only, key
        there = int(drawing.choice(others))
        only[job], key[job] = there, -believed[job, there] * width[job]
        back = np.flatnonzero((only == there) & np.isfinite(believed[:, here]))
        if len(back) and drawing.random() < settings.swapped:
            other = int(drawing.choice(back))
            only[other], key[other] = here, -believed[other, here] * width[other]
        return only, key
