"""Policies by the earliest end that is predicted."""

from __future__ import annotations

import numpy as np

from apportion.schedule.problem import Schedule, SchedulingProblem
from apportion.schedule.queues import by_events, in_order

AGED = 10.0
"sjf: a job that has waited this many times its predicted time goes before those that have not."


def eft(problem: SchedulingProblem) -> Schedule:
    """The system where the job would end first behind all that wait there; decided at arrival for good."""
    problem.need_times("eft")
    trace, beliefs, settings = problem.trace, problem.beliefs, problem.settings
    exact = beliefs.abstains is None and np.array_equal(
        beliefs.seconds, np.where(trace.eligible(), trace.seconds, np.inf)
    )
    if exact and trace.limit is None and settings.backfill in (None, "none"):
        return in_order(problem)
    return by_events(problem)


def eft_late(problem: SchedulingProblem) -> Schedule:
    """As `eft`, but a job is bound when it starts: all that wait are decided again at every event."""
    problem.need_times("eft_late")
    return by_events(problem, late=True)


def sjf(problem: SchedulingProblem) -> Schedule:
    """The job with the least work first, wherever it would end first; who waits long goes before."""
    problem.need_times("sjf")
    least = problem.beliefs.seconds.min(axis=1)
    return by_events(problem, late=True, key=least * problem.trace.width, age=AGED * least)


def careful(problem: SchedulingProblem) -> Schedule:
    """Late binding by a quantile of the predicted end, corrected by what finished jobs of the class took;
    holes in front of wide jobs are filled; jobs without a prediction worth using go where the user or the
    default says. As long as predictions claim to be exact and are, no job ends later than with `eft`."""
    problem.need_times("careful")
    beliefs, settings = problem.beliefs, problem.settings
    exact = beliefs.abstains is None and (beliefs.sigma is None or not beliefs.sigma.any())
    planned = exact and problem.trace.limit is None and settings.backfill is None
    return by_events(problem, late=True, backfill="conservative", careful=True, plan=planned)


def careful_short(problem: SchedulingProblem) -> Schedule:
    """`careful` with the least work first, as in `sjf`: the least mean completion, and a longer makespan
    under load."""
    problem.need_times("careful_short")
    least = problem.beliefs.seconds.min(axis=1)
    return by_events(
        problem, late=True, backfill="conservative", careful=True,
        key=least * problem.trace.width, age=AGED * least,
    )  # fmt: skip
