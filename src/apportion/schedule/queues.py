"""Jobs run to their end: queues, backfilling and late binding, simulated by the native extension."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from apportion import _native
from apportion.schedule.class_errors import class_errors
from apportion.schedule.problem import BACKFILL, Schedule, SchedulingProblem
from apportion.schedule.trace import Codes, Floats


def fallback_systems(problem: SchedulingProblem) -> tuple[Codes, NDArray[np.bool_]]:
    """The system of each job whose prediction abstains, else -1: the user's choice, else the default
    system, else the next eligible one in turn."""
    trace, abstains = problem.trace, problem.beliefs.abstains
    only = np.full(len(trace), -1, np.int32)
    if abstains is None:
        return only, np.zeros(len(trace), bool)
    only[abstains] = in_turn(trace.eligible())[abstains]
    if problem.settings.default is not None and problem.settings.default in trace.names:
        at = trace.names.index(problem.settings.default)
        only[abstains & trace.eligible()[:, at]] = at
    if trace.chosen is not None:
        said = abstains & (trace.chosen >= 0)
        only[said] = trace.chosen[said]
    return only, abstains


def in_turn(eligible: NDArray[np.bool_]) -> Codes:
    """For job i system i, counted round; where it cannot run, the next one where it can."""
    count, systems = eligible.shape
    begin = np.arange(count) % systems
    chosen = np.full(count, -1, np.int32)
    for step in range(systems):
        at = (begin + step) % systems
        free = (chosen < 0) & eligible[np.arange(count), at]
        chosen[free] = at[free]
    return chosen


def in_order(problem: SchedulingProblem, only: Codes | None = None) -> Schedule:
    """Queues first come, first served: no hole is filled and a choice is never changed.

    Args:
        only: each job's system. When not given, the earliest end by true times.
    """
    return _run(problem, only, early=True)


def by_events(
    problem: SchedulingProblem,
    only: Codes | None = None,
    *,
    backfill: str = "none",
    depth: int = 100,
    late: bool = False,
    key: Floats | None = None,
    age: Floats | None = None,
    anything_that_fits: bool = False,
    careful: bool = False,
    plan: bool = False,
) -> Schedule:
    """Queues with backfilling or late binding; ends come before arrivals before decisions at one instant.

    Args:
        only: each job's system; -1 leaves it to the earliest end that is predicted.
        backfill: `none`, `easy` or `conservative`; the settings' own wins.
        depth: how many waiting jobs are looked at, 0 for all; the settings' own wins.
        late: decide where a job runs when it can start, not when it arrives.
        key: the order of the queue, least first; when not given, by arrival.
        age: seconds of waiting after which a job goes before all that have not waited so long.
        anything_that_fits: no waiting job holds slots for itself.
        careful: use sigmas, and learn from jobs that have finished.
        plan: late, by predictions that claim to be exact: as long as they hold, no job ends later than with
            plain earliest finish.
    """
    settings = problem.settings
    more: dict[str, object] = {
        "backfill": BACKFILL.index(settings.backfill or backfill),
        "depth": depth if settings.depth is None else settings.depth,
        "late": late,
        "key": key,
        "age": age,
        "list": anything_that_fits,
    }
    if plan:
        more["plan"] = True
    if careful:
        more |= {
            "learn": settings.learn,
            "quantile_z": NormalDist().inv_cdf(settings.quantile),
            "tie": settings.tie,
            "explore": settings.explore,
            "repeat_sigma": settings.repeat_sigma,
        }
        if settings.learn:
            errors = class_errors(problem.trace, problem.beliefs)
            more |= {"class_sigma": errors.sigma, "class_deviation": errors.deviation, "trust": errors.trust}
    return _run(problem, only, early=False, **more)


def _run(problem: SchedulingProblem, only: Codes | None, *, early: bool, **options: object) -> Schedule:
    trace, beliefs, settings = problem.trace, problem.beliefs, problem.settings
    fallback, abstains = fallback_systems(problem)
    if beliefs.abstains is not None:
        only = fallback if only is None else np.where((only < 0) & abstains, fallback, only).astype(np.int32)
    truth = np.ascontiguousarray(np.where(trace.eligible(), trace.seconds, np.inf))
    predicted = beliefs.seconds
    system, start, end, believed, killed, lost, explored, delay, restarted = _native.schedule_jobs(
        early, trace.arrival, trace.width, truth, predicted, trace.slots.tolist(),
        sigma=beliefs.sigma, limit=trace.limit, only=only, program=trace.program,
        by_limit=settings.reserve == "limit", requeue=settings.requeue,
        programs=len(trace.programs), **options,
    )  # fmt: skip
    ran = np.zeros((len(trace), len(trace.systems)))
    ran[np.arange(len(trace)), system] = end - start
    jobs = "job was" if restarted == 1 else "jobs were"
    notes = (f"{restarted} {jobs} started again elsewhere",) if restarted else ()
    return Schedule(
        system, start, end, ran, believed, killed.astype(bool), abstains, lost, explored, delay,
        restarted=restarted, notes=notes,
    )  # fmt: skip
