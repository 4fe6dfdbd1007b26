"""The measurements behind the scheduling pages, as plain values that a file can hold."""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student  # type: ignore[import-untyped]

from apportion.errors import UnknownName
from apportion.schedule import (
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
from apportion.schedule.trace import Codes
from reproduction.scheduling.drawn import settings_compared
from reproduction.scheduling.measured import measured_jobs, predicted_runs
from reproduction.scheduling.speeds import queue_seconds, rounds_beside_plain_rules, speed

EXACT = ("fifo_fixed", "fifo_perf", "isolated", "allox")
TYPES = ("v100", "p100", "k80")
SIGMAS = (0.5, 1.0, 2.0)
LOADS = (0.5, 0.7, 0.85, 0.95)

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
        trace = replace(trace, chosen=_habits(trace))
        names = ["user", "round_robin", "fastest", "eft", "careful", "careful_short", "makespan"]
        summaries = {one.summary.policy: one.summary for one in simulate(trace, names)}
        row: dict[str, Any] = {
            "trace": name, "kind": kind, "jobs": len(trace), "bound_s": summaries["eft"].lp_bound_s,
            "true": {policy: [one.makespan_s, one.avg_jct_s] for policy, one in summaries.items()},
            "wrong": {},
        }  # fmt: skip
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


def _habits(trace: JobTrace) -> Codes:  # (N,)
    """Users who know one system for each class of their jobs, a large one rather than a small one; where a
    job cannot run there, the next."""
    drawing = np.random.default_rng([70, 1])
    count, systems = len(trace.programs), len(trace.systems)
    rank = np.stack(
        [
            drawing.choice(systems, systems, replace=False, p=trace.slots / trace.slots.sum())
            for _ in range(count)
        ]
    )[trace.program]
    able = np.take_along_axis(trace.eligible(), rank, axis=1)
    return np.take_along_axis(rank, able.argmax(axis=1)[:, None], axis=1)[:, 0].astype(np.int32)


def mean_and_half_width(values: Sequence[float]) -> list[float]:
    """The mean and half its 95 % interval, by Student's t."""
    if len(values) < 2:
        return [float(values[0]), math.nan]
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return [float(np.mean(values)), float(student.ppf(0.975, len(values) - 1)) * spread]


def _given(folder: Path) -> Iterator[tuple[dict[str, Any], JobTrace]]:
    for entry in json.loads((folder / "given.json").read_text())["round_based"]:
        yield entry, read_gavel(folder, entry)


def study(
    folder: Path,
    *,
    programs: Path,
    jobs: int,
    seeds: int,
    say: Say,
    only: Sequence[str] = (),
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything, with the CPU time that it took.

    Args:
        only: measure these parts alone; the others are taken from `before`.

    Raises:
        UnknownName: there is no such part.
    """
    parts: dict[str, Callable[[], Any]] = {
        "parity": lambda: parity(folder, say),
        "rounds": lambda: rounds_beside_plain_rules(_given(folder), say),
        "drawn": lambda: settings_compared(folder, say),
        "uncertainty": lambda: uncertainty(folder, seeds, say),
        "measured": lambda: [
            measured_jobs(runs, jobs, max(2, seeds // 2), say) for runs in predicted_runs(programs)
        ],
        "speed": lambda: speed(say),
        "queue_s": queue_seconds,
    }
    for name in only:
        if name not in parts:
            raise UnknownName("part of the study", name, parts)
    found = dict(before or {}) | {"made": time.strftime("%Y-%m-%d")}
    found |= {name: measured() for name, measured in parts.items() if not only or name in only}
    if not only or "uncertainty" in only:
        found["seeds"] = seeds
    found["cpu_s"] = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    return found
