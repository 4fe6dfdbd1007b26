"""The measurements behind the scheduling pages, as plain values that a file can hold."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student  # type: ignore[import-untyped]

from apportion.advise.relative_answers import shipped
from apportion.data.published.aiwc import FOUR_SYSTEMS
from apportion.schedule import (
    Beliefs,
    JobTrace,
    ScheduleSettings,
    SystemSlots,
    TraceRequest,
    parse_systems,
    readers,
    simulate,
    with_errors,
)
from apportion.schedule.programs import largest_least, largest_sum, makespan_bound
from apportion.schedule.rounds import ROUND_POLICIES

EXACT = ("fifo_fixed", "fifo_perf", "isolated", "allox")
TYPES = ("v100", "p100", "k80")
SIGMAS = (0.5, 1.0, 2.0)
LOADS = (0.5, 0.7, 0.85, 0.95)
RUNS_PER_JOB = 10_000
"The measured kernels take less than a second: a job is so many launches of one."

Say = Callable[[str], None]


def read_gavel(folder: Path, entry: dict[str, Any]) -> JobTrace:
    """The trace of an entry of given.json, on its cluster."""
    words = [f"{name}={count}" for name, count in zip(TYPES, entry["cluster"].split(":"), strict=True)]
    request = TraceRequest(
        parse_systems(words), folder / "traces_given" / entry["trace"], folder / "throughputs.csv"
    )
    trace: JobTrace = readers.load("gavel")(request)
    return trace


def parity(folder: Path, say: Say) -> dict[str, Any]:
    """Our results beside the reference's."""
    given = json.loads((folder / "given.json").read_text())
    plain, worst = 0, 0.0
    for entry in given["non_preemptive"]:
        (result,) = simulate(read_gavel(folder, entry), [entry["policy"]])
        for key in ("makespan_s", "avg_jct_s", "p95_jct_s", "avg_wait_s"):
            worst = max(worst, abs(getattr(result.summary, key) - entry[key]))
        plain += 1
    say(f"{plain} results without preemption: at most {worst:.4f} s apart")
    optima = [abs(_optimum(read_gavel(folder, entry), entry["problem"]) / entry["optimum"] - 1)
              for entry in given["lp"]]  # fmt: skip
    rows = []
    for entry in given["round_based"]:
        if entry["policy"] == "fifo" or entry.get("makespan_s") is None:
            continue
        settings = ScheduleSettings(drop_short_steps=entry["failed"] > 0)
        trace = read_gavel(folder, entry)
        (result,) = simulate(trace, [entry["policy"]], settings=settings, execution="rounds")
        summary, spread = result.summary, entry.get("spread", {})
        rows.append({
            "trace": entry["trace"].removesuffix(".csv"), "policy": entry["policy"],
            "exact": entry["policy"] in EXACT,
            "makespan_s": summary.makespan_s, "avg_jct_s": summary.avg_jct_s,
            "given_makespan_s": spread.get("makespan_s", [entry["makespan_s"]] * 2),
            "given_avg_jct_s": spread.get("avg_jct_s", [entry["avg_jct_s"]] * 2),
            "cpu_s": summary.policy_cpu_s + summary.simulator_cpu_s, "given_cpu_s": entry["simulator_cpu_s"],
            "slices": result.schedule.pieces, "bound_s": summary.lp_bound_s,
        })  # fmt: skip
    return {
        "plain": plain,
        "plain_worst_s": worst,
        "optima": len(optima),
        "optima_worst": max(optima),
        "rounds": rows,
    }


def _optimum(trace: JobTrace, problem: str) -> float:
    assert trace.speed is not None
    width, slots, speed = trace.width, trace.slots, np.where(trace.eligible(), trace.speed, 0)
    if problem == "min_total_duration_perf":
        return makespan_bound(np.where(trace.eligible(), trace.seconds, np.inf), width, slots)
    if problem == "max_sum_throughput_perf":
        return largest_sum(speed, width, slots).optimum
    rate = speed if problem.endswith("_perf") else np.ones(speed.shape)
    usual = (rate * slots).sum(axis=1) / slots.sum()
    weight = np.ones(len(trace)) if trace.weight is None else trace.weight
    return largest_least(rate * (width / (weight * usual))[:, None], width, slots).optimum


def _traces(folder: Path) -> Iterator[tuple[str, JobTrace, str]]:
    """Gavel's, then drawn ones of several loads, which nothing was chosen on."""
    given = json.loads((folder / "given.json").read_text())
    for entry in given["non_preemptive"]:
        if entry["policy"] == "eft":
            kind = (
                "arrivals"
                if "cont" in entry["trace"] or "max_min" in entry["trace"] or "msr" in entry["trace"]
                else "static"
            )
            yield entry["trace"].removesuffix(".csv"), read_gavel(folder, entry), kind
    systems = tuple(SystemSlots(name, 30) for name in "abcd")
    for load in LOADS:
        request = TraceRequest(systems, seed=70, jobs=6000, load=load, largest_width=4)
        yield f"drawn, load {load}", readers.load("synthetic")(request), "arrivals"


def uncertainty(folder: Path, seeds: int, say: Say) -> list[dict[str, Any]]:
    """Policies given the truth, and careful ones given errors, over seeds."""
    rows = []
    for name, trace, kind in _traces(folder):
        names = ["round_robin", "fastest", "eft", "careful", "careful_short", "makespan"]
        summaries = {one.summary.policy: one.summary for one in simulate(trace, names)}
        row: dict[str, Any] = {
            "trace": name, "kind": kind, "jobs": len(trace), "bound_s": summaries["eft"].lp_bound_s,
            "true": {policy: [one.makespan_s, one.avg_jct_s] for policy, one in summaries.items()},
            "wrong": {},
        }  # fmt: skip
        if trace.steps is not None:
            known = [policy for policy in ROUND_POLICIES if policy.endswith("_perf")]
            found = [one.summary for one in simulate(trace, known, execution="rounds")]
            row["gavel"] = {one.policy: [one.makespan_s, one.avg_jct_s] for one in found}
        for sigma in SIGMAS:
            for policy in ("eft", "careful", "careful_short"):
                drawn = [
                    next(simulate(trace, [policy], beliefs=with_errors(trace, sigma, seed))).summary
                    for seed in range(seeds)
                ]
                row["wrong"][f"{policy} {sigma:g}"] = [
                    mean_and_half_width([one.makespan_s / summaries[policy].makespan_s for one in drawn]),
                    mean_and_half_width([one.avg_jct_s / summaries[policy].avg_jct_s for one in drawn]),
                ]
        rows.append(row)
        say(
            f"{name}: careful at sigma 0.5 {row['wrong']['careful 0.5'][1][0]:.3f} of its oracle's completion"
        )
    return rows


def mean_and_half_width(values: Sequence[float]) -> list[float]:
    """The mean and half its 95 % interval, by Student's t."""
    if len(values) < 2:
        return [float(values[0]), math.nan]
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return [float(np.mean(values)), float(student.ppf(0.975, len(values) - 1)) * spread]


def measured_jobs(jobs: int, seeds: int, say: Say) -> dict[str, Any]:
    """Jobs drawn with replacement from measured runs on four systems, which models of other programs
    predict."""
    model = shipped().on(FOUR_SYSTEMS)
    log_times = model.reference.log_times
    anchor = 0
    vector = model.held_out(anchor)
    seconds = RUNS_PER_JOB * np.exp2(log_times)
    predicted = seconds[:, [anchor]] * np.exp2(vector - vector[:, [anchor]])
    error = np.log2(predicted / seconds)
    sigma = np.sqrt((error**2).mean(axis=0))
    kinds = ("cpu", "cpu", "gpu", "gpu")
    systems = tuple(SystemSlots(name, 50, kind) for name, kind in zip(FOUR_SYSTEMS, kinds, strict=True))
    names = ("round_robin", "random", "user_rr", "fastest", "eft", "careful", "oracle_eft", "oracle_careful")
    found: dict[str, dict[str, list[list[float]]]] = {}
    for setting, load in (("all at once", 0.0), ("load 0.85", 0.85)):
        kept: dict[str, list[list[float]]] = {name: [] for name in names}
        for seed in range(seeds):
            rows = np.random.default_rng([seed, 5]).integers(0, len(seconds), jobs)
            work = float(seconds[rows].min(axis=1).mean())
            gaps = np.random.default_rng([seed, 6]).exponential(work / (max(load, 1e-9) * 200), jobs)
            arrival = np.cumsum(gaps) if load else np.zeros(jobs)
            trace = JobTrace(
                systems, np.arange(jobs), arrival, np.ones(jobs, np.int64),
                np.ascontiguousarray(seconds[rows]),
                rows.astype(np.int32), model.reference.runs,
            )  # fmt: skip
            beliefs = Beliefs(
                np.ascontiguousarray(predicted[rows]), np.broadcast_to(sigma, (jobs, len(sigma))).copy()
            )
            settings = ScheduleSettings(seed=seed)
            for result in simulate(trace, names, beliefs=beliefs, settings=settings):
                one = result.summary
                kept[one.policy].append([one.makespan_s, one.avg_bounded_slowdown_fastest, one.avg_jct_s,
                                         one.makespan_s / (one.lp_bound_s or math.nan)])  # fmt: skip
        found[setting] = kept
        careful, oracle = (np.mean([row[2] for row in kept[name]]) for name in ("careful", "oracle_careful"))
        say(f"{jobs:,} measured jobs, {setting}: careful {careful / oracle:.3f} of its oracle's completion")
    named = seconds[np.arange(len(seconds)), predicted.argmin(axis=1)]
    order = np.argsort(predicted, axis=1)[:, 0] == np.argsort(seconds, axis=1)[:, 0]
    return {
        "jobs": jobs, "runs": len(seconds), "applications": len(set(model.reference.application)),
        "systems": list(FOUR_SYSTEMS), "anchor": FOUR_SYSTEMS[anchor], "sigma": sigma.tolist(),
        "fastest_named": float(order.mean()),
        "regret": float((named / seconds.min(axis=1)).mean()),
        "found": found,
    }  # fmt: skip


SIZE = """
import json, resource, sys, time
import numpy as np
from apportion.schedule import JobTrace, SchedulingProblem, SystemSlots, exact, policies
jobs, count, slots, widest = (int(word) for word in sys.argv[1:5])
policy = sys.argv[5]
drawing = np.random.default_rng(0)
seconds = drawing.lognormal(5, 1, jobs)[:, None] * drawing.uniform(0.5, 2, (jobs, count))
width = drawing.integers(1, widest + 1, jobs)
rate = 0.85 * count * slots / float((width * seconds.min(axis=1)).mean())
trace = JobTrace(tuple(SystemSlots(f"s{number}", slots) for number in range(count)), np.arange(jobs),
                 np.cumsum(drawing.exponential(1 / rate, jobs)), width, seconds, np.zeros(jobs, np.int32),
                 ("p",))
problem = SchedulingProblem(trace, exact(trace))
began = time.process_time()
policies.load(policy)(problem)
passed = time.process_time() - began
print(json.dumps([jobs / passed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


def speed(say: Say) -> list[dict[str, Any]]:
    """Jobs per second of CPU, and the most memory of a process with the trace in it."""
    rows = []
    for policy, jobs, systems, slots, widest in (
        ("eft", 1_000_000, 4, 200, 1), ("easy_fastest", 1_000_000, 4, 200, 16),
        ("easy_fastest", 100_000, 4, 200, 16),
        ("careful", 1_000_000, 4, 200, 1), ("eft", 1_000_000, 16, 10_000, 16),
    ):  # fmt: skip
        words = [str(value) for value in (jobs, systems, slots, widest)]
        done = subprocess.run(
            [sys.executable, "-c", SIZE, *words, policy], capture_output=True, text=True, check=True
        )
        rate, memory = json.loads(done.stdout)
        rows.append({"policy": policy, "jobs": jobs, "systems": systems, "slots": slots, "widest": widest,
                     "jobs_per_s": rate, "bytes": memory})  # fmt: skip
        say(f"{policy}, {jobs:,} jobs: {rate:,.0f} jobs per second of CPU, {memory / 2**30:.2f} GiB")
    return rows


def study(folder: Path, *, jobs: int, seeds: int, say: Say) -> dict[str, Any]:
    """Everything, with the CPU time that it took."""
    found = {
        "made": time.strftime("%Y-%m-%d"),
        "seeds": seeds,
        "parity": parity(folder, say),
        "uncertainty": uncertainty(folder, seeds, say),
        "measured": measured_jobs(jobs, max(2, seeds // 3), say),
        "speed": speed(say),
    }
    found["cpu_s"] = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    return found
