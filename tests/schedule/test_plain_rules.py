"""The simulator against the same rules in plain Python, on drawn traces and clusters."""

from __future__ import annotations

import random

import numpy as np
import pytest

from apportion.schedule import JobTrace, ScheduleSettings, SystemSlots, simulate
from tests.schedule.plain_rules import Job, Rounds, run_to_end

NAMES = ("v100", "p100", "k80")
PLAIN = ("eft", "fastest", "round_robin", "easy_fastest")
UNSOLVED = ("fifo_fixed", "fifo_perf", "isolated", "allox")


def drawn(seed):
    """Jobs and slots by type. Even seeds have jobs of several slots; arrivals are all at once, one by one, in
    bursts or with long gaps; a type may be missing, and a job may be able to run on some types only."""
    draws = random.Random(seed)
    slots = {name: draws.choice((0, 1, 2, 3, 4, 8, 12)) for name in NAMES}
    slots = {name: count for name, count in slots.items() if count} or {"p100": 2}
    usual = 10 ** draws.uniform(0, 5)
    arrivals = draws.choice(("at once", "one by one", "bursts", "gaps"))
    jobs, now = [], 0.0
    for _ in range(draws.randint(1, 40)):
        width = 1 if seed % 2 else min(draws.choice((1, 1, 2, 4, 8)), max(slots.values()))
        fastest = draws.uniform(0.5, 50.0)
        speed = [fastest * draws.uniform(0.1, 1.0) * (draws.random() > 0.1) for _ in slots]
        speed[max(range(len(slots)), key=lambda at: list(slots.values())[at])] = fastest
        if arrivals == "one by one":
            now += draws.expovariate(3 / usual)
        elif arrivals == "bursts":
            now += draws.choice((0.0, 0.0, 0.0, 360.0, 1920.0, usual))
        elif arrivals == "gaps":
            now += draws.choice((0.0, 1.0, 100 * usual))
        steps = max(1, int(draws.lognormvariate(0, 1.5) * usual * fastest / 10))
        jobs.append(Job(now, width, steps, tuple(speed)))
    return jobs, list(slots.values()), list(slots)


def trace_of(jobs, slots, names):
    speed = np.array([job.speed for job in jobs])
    steps = np.array([job.steps for job in jobs])
    with np.errstate(divide="ignore"):
        seconds = steps[:, None] / speed
    return JobTrace(
        tuple(SystemSlots(name, count) for name, count in zip(names, slots, strict=True)),
        np.arange(len(jobs)), np.array([job.arrival for job in jobs]), np.array([job.width for job in jobs]),
        seconds, np.zeros(len(jobs), np.int32), ("p",), steps=steps, speed=speed,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_jobs_that_run_to_their_end_start_and_end_where_and_when_the_rules_say(seed):
    jobs, slots, names = drawn(seed)
    for found in simulate(trace_of(jobs, slots, names), PLAIN):
        system, start, end = map(list, zip(*run_to_end(jobs, slots, found.summary.policy), strict=True))
        assert found.schedule.system.tolist() == system, found.summary.policy
        assert found.schedule.start == pytest.approx(start, rel=1e-12, abs=1e-6)
        assert found.schedule.end == pytest.approx(end, rel=1e-12, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("drop", [False, True])
def test_rounds_without_a_solver_end_each_job_when_the_rules_say(seed, drop):
    jobs, slots, names = drawn(seed)
    settings = ScheduleSettings(seed=seed, drop_short_steps=drop)
    policies = [name for name in UNSOLVED if name != "allox" or all(job.width == 1 for job in jobs)]
    for found in simulate(trace_of(jobs, slots, names), policies, settings=settings, execution="rounds"):
        name = found.summary.policy
        end, dropped, micro_tasks = Rounds(jobs, slots, names, name, seed=seed, drop=drop).run()
        assert found.schedule.end == pytest.approx([end[at] for at in range(len(jobs))], abs=2e-3), name
        assert (found.schedule.pieces, found.summary.killed) == (micro_tasks, len(dropped)), name
