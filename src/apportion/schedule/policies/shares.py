"""Policies that give each job a share of each system by a linear program, and serve the shares run by run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from apportion.schedule.choices import QueueState, by_choices
from apportion.schedule.problem import Schedule, SchedulingProblem
from apportion.schedule.programs import UnsolvedProgram, largest_least, largest_sum, said_of
from apportion.schedule.trace import Floats, Integers

CHANGED = 0.05
"Of the jobs there: so many must have come or gone before shares are worked out again."
LEAST_SHARE = 1e-6
"A share below this is the solver's rounding."

Program = Callable[[Floats, Integers, Floats, Integers], Floats]
"Shares (n, S) from speeds in parts of the best, widths, weights and slots."


def max_min(problem: SchedulingProblem) -> Schedule:
    """Heterogeneity-aware max-min fairness: the next free slots of a system go to the job that is owed most
    there."""
    return _served(problem, _fair)


def sum_throughput(problem: SchedulingProblem) -> Schedule:
    """The largest sum of speeds, each in parts of the job's best. It starves jobs: for comparison only."""
    return _served(problem, lambda rate, width, weight, slots: largest_sum(rate, width, slots).share)


def _fair(rate: Floats, width: Integers, weight: Floats, slots: Integers) -> Floats:
    usual = (rate * slots).sum(axis=1) / slots.sum()
    return largest_least(rate * (width / (weight * usual))[:, None], width, slots).share


def _served(problem: SchedulingProblem, program: Program) -> Schedule:
    trace, believed = problem.trace, problem.beliefs.seconds
    count, systems = believed.shape
    rate = believed.min(axis=1, keepdims=True) / believed
    weight = np.ones(count) if trace.weight is None else trace.weight
    share, owed = np.zeros((count, systems)), np.zeros((count, systems))
    known: set[int] = set()
    at, failures = 0.0, 0

    def choose(state: QueueState) -> list[tuple[int, int]]:
        nonlocal at, known, failures
        owed[state.waiting] += share[state.waiting] * (state.now - at)
        at = state.now
        there = sorted([*state.waiting, *state.running])
        changed = len(known.symmetric_difference(there))
        if changed > CHANGED * len(there) or not state.running:
            try:
                share[there] = program(rate[there], trace.width[there], weight[there], trace.slots)
                known = set(there)
            except UnsolvedProgram:
                failures += 1
        started: list[tuple[int, int]] = []
        free, left = state.free.copy(), list(state.waiting)
        for system in range(systems):
            able = [job for job in left if share[job, system] > LEAST_SHARE]
            # Whoever is owed most is served first; slots are kept together for a wide job until it fits.
            for job in sorted(able, key=lambda job: (-owed[job, system], -share[job, system], job)):
                if trace.width[job] > free[system]:
                    break
                free[system] -= trace.width[job]
                started.append((job, system))
                left.remove(job)
        if not started and not state.running and left:
            job = left[0]
            started = [(job, int(np.where(trace.width[job] <= free, rate[job], 0).argmax()))]
        return started

    def notes() -> tuple[str, ...]:
        return said_of(failures)

    return by_choices(problem, choose, notes=notes)
