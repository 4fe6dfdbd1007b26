"""Jobs run to their end by a policy written in Python: at each event it says which waiting jobs start
where."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from apportion.errors import InvalidSetting, JobError
from apportion.schedule.problem import Schedule, SchedulingProblem
from apportion.schedule.queues import fallback_systems
from apportion.schedule.trace import Integers


@dataclass(frozen=True, eq=False)
class QueueState:
    """What a policy is told at an event."""

    now: float
    waiting: list[int]
    "Rows of the trace, in order of arrival."

    running: list[int]
    free: Integers  # (S,)


Choose = Callable[[QueueState], list[tuple[int, int]]]
"""Pairs of waiting job and system, to start now."""


def by_choices(
    problem: SchedulingProblem, choose: Choose, *, notes: Callable[[], tuple[str, ...]] = tuple
) -> Schedule:
    """The trace, with every start chosen by the policy.

    Args:
        notes: asked at the end for what the policy has to say.

    Raises:
        JobError: the policy starts nothing though nothing runs and nothing will arrive.
    """
    trace, beliefs = problem.trace, problem.beliefs
    if problem.settings.requeue:
        raise InvalidSetting("This policy has no requeue; leave it out or take eft, sjf or careful")
    fallback, abstains = fallback_systems(problem)
    count = len(trace)
    limit = np.full(count, np.inf) if trace.limit is None else trace.limit
    system = np.full(count, -1, np.int32)
    start, end, predicted = np.zeros(count), np.zeros(count), np.zeros(count)
    killed = np.zeros(count, bool)
    free = trace.slots.copy()
    waiting: list[int] = []
    ends: list[tuple[float, int]] = []
    seconds, upcoming = 0.0, 0
    while upcoming < count or ends:
        now = min(trace.arrival[upcoming] if upcoming < count else np.inf, ends[0][0] if ends else np.inf)
        while ends and ends[0][0] == now:
            job = heapq.heappop(ends)[1]
            free[system[job]] += trace.width[job]
        while upcoming < count and trace.arrival[upcoming] == now:
            waiting.append(upcoming)
            upcoming += 1
        began = time.process_time()
        started = [(job, int(fallback[job])) for job in waiting if fallback[job] >= 0]
        started = [pair for pair in started if trace.width[pair[0]] <= free[pair[1]]][:1]
        if not started and waiting and free.any():
            open_to_choice = [job for job in waiting if fallback[job] < 0]
            state = QueueState(float(now), open_to_choice, [job for _, job in ends], free.copy())
            started = choose(state) if open_to_choice else []
        seconds += time.process_time() - began
        for job, at in started:
            if trace.width[job] > free[at]:
                raise JobError(f"The policy starts job {trace.job[job]} where no slot is free")
            free[at] -= trace.width[job]
            truth = float(trace.seconds[job, at])
            killed[job] = truth > limit[job]
            system[job], start[job], end[job] = at, now, now + min(truth, limit[job])
            predicted[job] = beliefs.seconds[job, at]
            heapq.heappush(ends, (float(end[job]), job))
        gone = {job for job, _ in started}
        waiting = [job for job in waiting if job not in gone] if gone else waiting
        if waiting and not ends and upcoming == count and not started:
            raise JobError("The policy starts none of the waiting jobs though every slot is free")
    ran = np.zeros((count, len(trace.systems)))
    ran[np.arange(count), system] = end - start
    lost = float((trace.width * (end - start))[killed].sum())
    return Schedule(system, start, end, ran, predicted, killed, abstains, lost, policy_seconds=seconds,
                    notes=notes())  # fmt: skip
