"""How good a schedule was: times, slowdowns, use of the systems, fairness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.learn.metrics import over_groups
from apportion.schedule.problem import Schedule
from apportion.schedule.trace import Floats, JobTrace

SHORTEST_SECONDS = 10.0
"Slowdowns divide by no less than this: otherwise jobs of a second decide the mean."
MOST_RESAMPLED = 5000
"Classes up to which means have an interval: each of its 1,000 samples draws all classes anew."


@dataclass(frozen=True)
class ScheduleSummary:
    """A schedule in numbers. Completion (`jct`) and slowdowns are of jobs that completed.

    Intervals (`…_95`) are the middle 95 % of what resampled classes give; None with fewer than two classes.
    """

    policy: str
    jobs: int
    completed: int
    killed: int
    makespan_s: float
    avg_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    avg_wait_s: float
    avg_bounded_slowdown: float
    "Completion over the time that the job ran, where it ran: this flatters slow systems."

    avg_bounded_slowdown_fastest: float
    "Completion over the job's time on its fastest system."

    utilisation: float
    useful_work: float
    "Utilisation that counts each job with its time on its fastest system."

    fairness_jain: float
    "Jain's index of the speed that each job got over its speed under an equal share; 1: all alike."

    lp_bound_s: float | None
    "No schedule of these jobs is shorter, whenever they arrive."

    fallback: int
    placement_regret: float
    "Mean of a job's time where it ran over its least time."

    policy_cpu_s: float
    "Of the policy where it can be told from the simulator's, as in rounds; else 0."

    simulator_cpu_s: float
    "Of the simulator, and of the policy where that is part of it."

    jobs_per_cpu_s: float
    "Jobs over both."

    p99_jct_s: float
    avg_jct_s_95: tuple[float, float] | None
    p50_wait_s: float
    p95_wait_s: float
    p99_wait_s: float
    p50_bounded_slowdown: float
    p50_bounded_slowdown_fastest: float
    avg_bounded_slowdown_fastest_95: tuple[float, float] | None
    lp_ratio: float | None
    "Makespan over `lp_bound_s`."

    utilisation_by_system: dict[str, float]
    fairness_least: float
    "The least speed of a job over its speed under an equal share."

    fairness_jain_users: float | None
    "Jain's index of the mean of that ratio over each user's jobs; None where users are not known."

    lost_slot_s: float
    "Slot-seconds of runs that were killed, or started again elsewhere."

    head_delay_s: float
    "Backfilling: the longest that a job began after the time first reserved for it."

    explored: int
    restarted: int


def summary_of(
    policy: str,
    trace: JobTrace,
    schedule: Schedule,
    *,
    rounds: bool,
    lp_bound: float | None,
    cpu_seconds: float,
    trim: float = 0.0,
) -> ScheduleSummary:
    """The numbers of a schedule.

    Args:
        rounds: whether jobs ran in slices; then no single run time exists, and slowdowns divide by the time
            on the fastest system.
        trim: means, percentiles and fairness leave out this part of the jobs, the first that arrived, and as
            many of the last: what is left is nearer to a steady state.

    Raises:
        InvalidSetting: nothing would be left.
    """
    if not 0 <= trim < 0.5:
        raise InvalidSetting(f"trim is a part of the jobs at each end, from 0 to less than 0.5, not {trim}")
    cut = int(trim * len(trace))
    kept = np.zeros(len(trace), bool)
    kept[cut : len(trace) - cut] = True
    done = kept & ~schedule.killed
    if not done.any():
        done = kept
    completion = (schedule.end - trace.arrival)[done]
    wait = (schedule.start - trace.arrival)[kept]
    fastest = trace.fastest()
    ran = schedule.ran.sum(axis=1)
    own = fastest if rounds else schedule.end - schedule.start
    makespan = float(schedule.end.max() - trace.arrival[0])
    capacity = float(trace.slots.sum()) * makespan
    useful = np.where(schedule.killed, 0.0, fastest)
    slowdown, least_slowdown = _slowdown(completion, own[done]), _slowdown(completion, fastest[done])
    speeds = _over_equal_share(trace, schedule, done)
    by_system = (trace.width[:, None] * schedule.ran).sum(axis=0) / (trace.slots * makespan)
    cpu_seconds = max(cpu_seconds, schedule.policy_seconds)
    return ScheduleSummary(
        policy=policy,
        jobs=len(trace),
        completed=int((~schedule.killed).sum()),
        killed=int(schedule.killed.sum()),
        makespan_s=makespan,
        avg_jct_s=float(completion.mean()),
        p50_jct_s=_percentile(completion, 50),
        p95_jct_s=_percentile(completion, 95),
        avg_wait_s=float(wait.mean()),
        avg_bounded_slowdown=float(slowdown.mean()),
        avg_bounded_slowdown_fastest=float(least_slowdown.mean()),
        utilisation=float((trace.width * ran).sum() / capacity),
        useful_work=float((trace.width * useful).sum() / capacity),
        fairness_jain=_jain(speeds),
        lp_bound_s=lp_bound,
        fallback=int(schedule.fallback.sum()),
        placement_regret=float((ran[done] / fastest[done]).mean()),
        policy_cpu_s=schedule.policy_seconds,
        simulator_cpu_s=cpu_seconds - schedule.policy_seconds,
        jobs_per_cpu_s=len(trace) / max(cpu_seconds, 1e-9),
        p99_jct_s=_percentile(completion, 99),
        avg_jct_s_95=_interval(completion, trace.program[done]),
        p50_wait_s=_percentile(wait, 50),
        p95_wait_s=_percentile(wait, 95),
        p99_wait_s=_percentile(wait, 99),
        p50_bounded_slowdown=_percentile(slowdown, 50),
        p50_bounded_slowdown_fastest=_percentile(least_slowdown, 50),
        avg_bounded_slowdown_fastest_95=_interval(least_slowdown, trace.program[done]),
        lp_ratio=makespan / lp_bound if lp_bound else None,
        utilisation_by_system=dict(zip(trace.names, by_system.tolist(), strict=True)),
        fairness_least=float(speeds.min()),
        fairness_jain_users=None if trace.user is None else _jain(_means_of(speeds, trace.user[done])),
        lost_slot_s=float(schedule.lost_slot_seconds),
        head_delay_s=float(schedule.head_delay),
        explored=schedule.explored,
        restarted=schedule.restarted,
    )


def _percentile(values: Floats, which: float) -> float:
    return float(np.percentile(values, which))


def _slowdown(completion: Floats, seconds: Floats) -> Floats:
    return np.asarray(np.maximum(1.0, completion / np.maximum(seconds, SHORTEST_SECONDS)))


def _interval(values: Floats, program: NDArray[np.int32]) -> tuple[float, float] | None:
    if not 2 <= len(np.unique(program)) <= MOST_RESAMPLED:
        return None
    found = over_groups(values, program)
    return found.low, found.high


def _means_of(values: Floats, groups: NDArray[np.int32]) -> Floats:
    _, member, count = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(member, values) / count)


def _jain(values: Floats) -> float:
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def _over_equal_share(trace: JobTrace, schedule: Schedule, done: NDArray[np.bool_]) -> Floats:
    """Speed got (the job over its completion) over speed under an equal share among as many jobs as there
    were in the mean."""
    completion = np.maximum(schedule.end - trace.arrival, 1e-9)
    span = max(float(schedule.end.max() - trace.arrival[0]), 1e-9)
    jobs_there = max(1.0, float(completion.sum()) / span)
    share = np.where(trace.eligible(), trace.slots / (jobs_there * trace.width[:, None]), 0.0)
    share = share / np.maximum(1.0, share.sum(axis=1, keepdims=True))
    equal = (share / trace.seconds).sum(axis=1)
    return np.asarray((1 / completion / equal)[done])
