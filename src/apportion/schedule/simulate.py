"""One trace under several policies, each with its schedule and its numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl

from apportion.errors import MissingPackage, UnknownName
from apportion.schedule.beliefs import Beliefs, exact
from apportion.schedule.policies import policies
from apportion.schedule.problem import Schedule, ScheduleSettings, SchedulingProblem
from apportion.schedule.quality import ScheduleSummary, summary_of
from apportion.schedule.trace import JobTrace, write_table

RUN_TO_END, ROUNDS = "run-to-end", "rounds"
EXECUTIONS = (RUN_TO_END, ROUNDS)
ORACLE = "oracle_"
"Before a policy's name: it is given the true times."


@dataclass(frozen=True, eq=False)
class SimulatedPolicy:
    """A policy's schedule of a trace, and its numbers."""

    summary: ScheduleSummary
    schedule: Schedule


def simulate(
    trace: JobTrace,
    names: Sequence[str],
    *,
    beliefs: Beliefs | None = None,
    settings: ScheduleSettings | None = None,
    execution: str = RUN_TO_END,
    trim: float = 0.0,
) -> Iterator[SimulatedPolicy]:
    """Simulate each policy in turn.

    Args:
        names: of policies; those of Gavel when jobs run in rounds.
        beliefs: what the policies know of times; by default the truth.
        execution: `run-to-end`, or `rounds` (Gavel's preemptive slices of 360 s).
        trim: the part of the jobs, first and last to arrive, that means leave out.

    Raises:
        UnknownName: there is no such policy, or no such execution.
        InvalidSetting: the policy cannot serve this trace, or needs to know more.
        MissingPackage: the policy solves linear programs, and SciPy is not installed.
    """
    if execution not in EXECUTIONS:
        raise UnknownName("execution", execution, EXECUTIONS)
    for name in names:
        _known(name, execution)
    beliefs = beliefs or exact(trace)
    settings = settings or ScheduleSettings()
    if settings.default is not None and settings.default not in trace.names:
        raise UnknownName("system", settings.default, trace.names)
    bound = lp_bound(trace)
    for name in names:
        given = exact(trace) if name.startswith(ORACLE) else beliefs
        problem = SchedulingProblem(trace, given, settings)
        began = time.process_time()
        schedule = _scheduled(problem, name.removeprefix(ORACLE), execution)
        passed = time.process_time() - began
        summary = summary_of(
            name, trace, schedule, rounds=execution == ROUNDS, lp_bound=bound, cpu_seconds=passed, trim=trim
        )
        yield SimulatedPolicy(summary, schedule)


def _known(name: str, execution: str) -> None:
    there = policies.names() if execution == RUN_TO_END else list(_rounds().ROUND_POLICIES)
    if name.removeprefix(ORACLE) not in there:
        raise UnknownName(f"policy for execution {execution}", name, there)


def _scheduled(problem: SchedulingProblem, name: str, execution: str) -> Schedule:
    if execution == ROUNDS:
        schedule: Schedule = _rounds().run_in_rounds(problem, name)
    else:
        schedule = policies.load(name)(problem)
    return schedule


def _rounds() -> ModuleType:
    try:
        from apportion.schedule import rounds
    except ModuleNotFoundError as error:
        raise MissingPackage("scipy", "schedule", "Execution in rounds") from error
    return rounds


def lp_bound(trace: JobTrace) -> float | None:
    """The shortest makespan of any schedule, were all jobs there at once and could they move; None without
    SciPy."""
    try:
        from apportion.schedule.programs import makespan_bound
    except ModuleNotFoundError:
        return None
    return makespan_bound(np.where(trace.eligible(), trace.seconds, np.inf), trace.width, trace.slots)


def write_jobs(trace: JobTrace, results: Sequence[SimulatedPolicy], path: Path) -> None:
    """A row for each job and policy: where it ran, from when to when, and what was believed."""
    tables = []
    for result in results:
        schedule = result.schedule
        ran = schedule.ran.sum(axis=1)
        tables.append(
            pl.DataFrame(
                {
                    "policy": [result.summary.policy] * len(trace),
                    "job": trace.job,
                    "class": np.array(trace.programs, object)[trace.program].astype(str),
                    "system": [trace.names[at] for at in schedule.system.tolist()],
                    "width": trace.width,
                    "arrival_s": trace.arrival,
                    "start_s": schedule.start,
                    "end_s": schedule.end,
                    "waited_s": schedule.start - trace.arrival,
                    "ran_s": ran,
                    "predicted_s": np.where(np.isnan(schedule.predicted), ran, schedule.predicted),
                    "killed": schedule.killed,
                    "fallback": schedule.fallback,
                }
            )
        )
    write_table(pl.concat(tables), path)
