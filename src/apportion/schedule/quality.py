"""How good a schedule was: times, slowdowns, use of the systems, fairness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.schedule.problem import Schedule
from apportion.schedule.trace import Floats, JobTrace

SHORTEST_SECONDS = 10.0
"Slowdowns divide by no less than this: otherwise jobs of a second decide the mean."


@dataclass(frozen=True)
class ScheduleSummary:
    """A schedule in numbers. Completion (`jct`) and slowdowns are of jobs that completed."""

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
    simulator_cpu_s: float


def summary_of(
    policy: str,
    trace: JobTrace,
    schedule: Schedule,
    *,
    rounds: bool,
    lp_bound: float | None,
    cpu_seconds: float,
) -> ScheduleSummary:
    """The numbers of a schedule.

    Args:
        rounds: whether jobs ran in slices; then no single run time exists, and both slowdowns divide by the
            time on the fastest system.
    """
    done = ~schedule.killed
    if not done.any():
        done = np.ones(len(trace), bool)
    completion = (schedule.end - trace.arrival)[done]
    fastest = trace.fastest()
    ran = schedule.ran.sum(axis=1)
    own = fastest if rounds else schedule.end - schedule.start
    makespan = float(schedule.end.max() - trace.arrival[0])
    capacity = float(trace.slots.sum()) * makespan
    useful = np.where(schedule.killed, 0.0, fastest)
    return ScheduleSummary(
        policy, len(trace), int((~schedule.killed).sum()), int(schedule.killed.sum()), makespan,
        float(completion.mean()), float(np.percentile(completion, 50)), float(np.percentile(completion, 95)),
        float((schedule.start - trace.arrival).mean()), _slowdown(completion, own[done]),
        _slowdown(completion, fastest[done]), float((trace.width * ran).sum() / capacity),
        float((trace.width * useful).sum() / capacity), _jain(trace, schedule, done), lp_bound,
        int(schedule.fallback.sum()), float((ran[done] / fastest[done]).mean()), schedule.policy_seconds,
        max(0.0, cpu_seconds - schedule.policy_seconds),
    )  # fmt: skip


def _slowdown(completion: Floats, seconds: Floats) -> float:
    return float(np.maximum(1.0, completion / np.maximum(seconds, SHORTEST_SECONDS)).mean())


def _jain(trace: JobTrace, schedule: Schedule, done: np.ndarray) -> float:
    """Of speed got (the job over its completion) to speed under an equal share among as many jobs as there
    were in the mean."""
    completion = np.maximum(schedule.end - trace.arrival, 1e-9)
    span = max(float(schedule.end.max() - trace.arrival[0]), 1e-9)
    jobs_there = max(1.0, float(completion.sum()) / span)
    share = np.where(trace.eligible(), trace.slots / (jobs_there * trace.width[:, None]), 0.0)
    share = share / np.maximum(1.0, share.sum(axis=1, keepdims=True))
    equal = (share / trace.seconds).sum(axis=1)
    got = (1 / completion / equal)[done]
    return float(got.sum() ** 2 / (len(got) * (got**2).sum()))
