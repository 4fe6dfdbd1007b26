"""What scheduling costs: jobs per second of CPU, memory, rounds beside the same rules in plain Python, and
the prediction of a whole queue."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from apportion.advise.relative_answers import shipped
from apportion.learn.relative.profile import Profile
from apportion.learn.relative.relative_model import Reference
from apportion.schedule import JobTrace, simulate

PLAIN = ("fifo_fixed", "fifo_perf", "isolated", "allox")
"Policies of rounds that tests/schedule/plain_rules.py knows."
QUEUE = 10_000

SIZES = (
    ("eft", 1_000_000, 4, 200, 1, 0.0), ("eft", 100_000, 4, 200, 1, 0.0),
    ("easy_fastest", 1_000_000, 4, 200, 16, 0.0), ("easy_fastest", 100_000, 4, 200, 16, 0.0),
    ("careful", 1_000_000, 4, 200, 1, 0.0), ("careful", 1_000_000, 4, 200, 1, 0.5),
    ("eft", 1_000_000, 16, 10_000, 16, 0.0),
)  # fmt: skip
"Policy, jobs, systems, slots of each, the largest width, and the sigma of what is predicted."

SIZE = """
import json, resource, sys, time
import numpy as np
from apportion.schedule import JobTrace, SchedulingProblem, SystemSlots, policies, with_errors
jobs, count, slots, widest = (int(word) for word in sys.argv[1:5])
policy, sigma = sys.argv[5], float(sys.argv[6])
drawing = np.random.default_rng(0)
seconds = drawing.lognormal(5, 1, jobs)[:, None] * drawing.uniform(0.5, 2, (jobs, count))
width = drawing.integers(1, widest + 1, jobs)
rate = 0.85 * count * slots / float((width * seconds.min(axis=1)).mean())
trace = JobTrace(tuple(SystemSlots(f"s{number}", slots) for number in range(count)), np.arange(jobs),
                 np.cumsum(drawing.exponential(1 / rate, jobs)), width, seconds,
                 (np.arange(jobs) % 40).astype(np.int32), tuple(map(str, range(40))))
problem = SchedulingProblem(trace, with_errors(trace, sigma, 0))
began = time.process_time()
policies.load(policy)(problem)
passed = time.process_time() - began
print(json.dumps([jobs / passed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


def speed(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Jobs per second of CPU, and the most memory of a process with the trace in it."""
    rows = []
    for policy, jobs, systems, slots, widest, sigma in SIZES:
        words = [str(value) for value in (jobs, systems, slots, widest)]
        done = subprocess.run(
            [sys.executable, "-c", SIZE, *words, policy, str(sigma)],
            capture_output=True,
            text=True,
            check=True,
        )
        rate, memory = json.loads(done.stdout)
        asked = {
            "policy": policy,
            "jobs": jobs,
            "systems": systems,
            "slots": slots,
            "widest": widest,
            "sigma": sigma,
        }
        rows.append({**asked, "jobs_per_s": rate, "bytes": memory})
        say(f"{policy}, {jobs:,} jobs: {rate:,.0f} jobs per second of CPU, {memory / 2**30:.2f} GiB")
    return rows


def rounds_beside_plain_rules(
    entries: Iterator[tuple[dict[str, Any], JobTrace]], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The CPU time of our rounds, of the same rules in plain Python in the same process, and of Gavel's
    simulator as recorded. Both of ours must end at the same time."""
    plain = import_module("tests.schedule.plain_rules")
    rows = []
    for entry, trace in entries:
        if entry["policy"] not in PLAIN or entry["failed"] or trace.steps is None or trace.speed is None:
            continue
        assert trace.speed is not None
        jobs = [
            plain.Job(float(arrival), int(width), int(steps), tuple(speed.tolist()))
            for arrival, width, steps, speed in zip(
                trace.arrival,
                trace.width,
                trace.steps,
                np.where(trace.eligible(), trace.speed, 0.0),
                strict=True,
            )
        ]
        began = time.process_time()
        end, _, micro_tasks = plain.Rounds(jobs, trace.slots.tolist(), trace.names, entry["policy"]).run()
        passed = time.process_time() - began
        # Small runs are over before the clock ticks: the least of five. The bound is not counted.
        several = [next(simulate(trace, [entry["policy"]], execution="rounds")) for _ in range(5)]
        ours = min(one.summary.policy_cpu_s + one.summary.simulator_cpu_s for one in several)
        result = several[0]
        assert abs(max(end.values()) - result.schedule.end.max()) < 1e-6
        rows.append(
            {
                "trace": entry["trace"].removesuffix(".csv"),
                "policy": entry["policy"],
                "slices": micro_tasks,
                "ours_s": ours,
                "plain_s": passed,
                "gavel_s": entry["simulator_cpu_s"],
            }
        )
    least = min(row["plain_s"] / row["ours_s"] for row in rows)
    say(f"rounds: {least:.0f} times as fast as plain Python, at least")
    return rows


def drawn_queue(known: Reference, jobs: int) -> list[Profile]:
    """Jobs that are known runs whose counters are moved a little, by a seed."""
    drawing = np.random.default_rng(0)
    values = known.values[drawing.integers(0, len(known.runs), jobs)]
    values = values * np.exp2(drawing.normal(0, 0.3, values.shape))
    return [
        Profile(f"job {number}", dict(zip(known.counters, row, strict=True)))
        for number, row in enumerate(values.tolist())
    ]


def queue_seconds() -> float:
    """Seconds of CPU to predict the relative performance of a queue of jobs."""
    model = shipped()
    queue = drawn_queue(model.reference, QUEUE)
    model.answer(queue[:1])  # fits what answers need
    began = time.process_time()
    model.answer(queue)
    return time.process_time() - began
