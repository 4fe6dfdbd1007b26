"""Policies that choose a job's system without a look at the queues."""

from __future__ import annotations

import numpy as np

from apportion.errors import InvalidSetting
from apportion.schedule.problem import Schedule, SchedulingProblem
from apportion.schedule.queues import by_events, in_order, in_turn
from apportion.schedule.trace import Codes


def round_robin(problem: SchedulingProblem) -> Schedule:
    """The next eligible system in turn."""
    return _queued(problem, in_turn(problem.trace.eligible()))


def at_random(problem: SchedulingProblem) -> Schedule:
    """An eligible system drawn at random, seeded. Report the mean of 20 seeds."""
    able = problem.trace.eligible()
    drawn = np.random.default_rng([problem.settings.seed, 20]).random(able.shape)
    return _queued(problem, np.where(able, drawn, -1).argmax(axis=1).astype(np.int32))


def user(problem: SchedulingProblem) -> Schedule:
    """What the user chose, as recorded; where that is not known, the next eligible system in turn."""
    trace = problem.trace
    if trace.chosen is None:
        raise InvalidSetting(
            "The trace does not say which system the user chose (column system). Use user_rr"
        )
    return _queued(
        problem, np.where(trace.chosen >= 0, trace.chosen, in_turn(trace.eligible())).astype(np.int32)
    )


def user_rr(problem: SchedulingProblem) -> Schedule:
    """Users know what their program supports: whatever can run on a kind of accelerator goes there, in turn.

    A kind is written NAME=SLOTS:KIND; kinds other than cpu come first.
    """
    trace = problem.trace
    kinds = [system.kind for system in trace.systems]
    if not any(kinds):
        raise InvalidSetting(
            "user_rr needs the kinds of the systems: write them NAME=SLOTS:KIND, such as ruby=8:cpu"
        )
    able = trace.eligible()
    accelerated = able & np.array([kind != "cpu" for kind in kinds])
    within = np.where(accelerated.any(axis=1)[:, None], accelerated, able)
    return _queued(problem, in_turn(within))


def fastest(problem: SchedulingProblem) -> Schedule:
    """The system with the shortest predicted time, and wait there."""
    return _queued(problem, _shortest(problem))


def easy_fastest(problem: SchedulingProblem) -> Schedule:
    """`fastest`, with EASY backfilling in each system's queue."""
    return by_events(problem, _shortest(problem), backfill="easy", depth=0)


def _shortest(problem: SchedulingProblem) -> Codes:
    return np.asarray(problem.beliefs.seconds.argmin(axis=1), np.int32)


def _queued(problem: SchedulingProblem, only: Codes) -> Schedule:
    settings = problem.settings
    if settings.backfill in (None, "none") and not (settings.requeue and problem.trace.limit is not None):
        return in_order(problem, only)
    return by_events(problem, only)
