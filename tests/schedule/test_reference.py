"""Equal to Gavel's reference results where they are exact, inside their spread where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.schedule import ScheduleSettings, TraceRequest, parse_systems, simulate
from apportion.schedule.programs import largest_least, largest_sum, makespan_bound
from apportion.schedule.readers.gavel import read

EXACT = ("fifo_fixed", "fifo_perf", "isolated", "allox")


def trace_of_entry(entry, folder):
    words = [
        f"{name}={count}"
        for name, count in zip(("v100", "p100", "k80"), entry["cluster"].split(":"), strict=True)
    ]
    return read(
        TraceRequest(
            parse_systems(words), folder / "traces_given" / entry["trace"], folder / "throughputs.csv"
        )
    )


def test_policies_without_preemption_give_every_number_as_printed(given, gavel_data):
    for entry in given["non_preemptive"]:
        (result,) = simulate(trace_of_entry(entry, gavel_data), [entry["policy"]])
        for key, value in entry.items():
            if isinstance(value, float):
                name = key.replace("_vs_fastest", "_fastest")
                digits = 3 if key.endswith("_s") else 5
                assert getattr(result.summary, name) == pytest.approx(value, abs=0.6 * 10**-digits), (
                    entry,
                    key,
                )


def optimum_of(problem, trace):
    width, slots, speed = trace.width, trace.slots, np.where(trace.eligible(), trace.speed, 0)
    if problem == "max_min_fairness":
        return largest_least(np.ones(speed.shape) * (width / trace.weight)[:, None], width, slots).optimum
    if problem == "max_min_fairness_perf":
        usual = (speed * slots).sum(axis=1) / slots.sum()
        return largest_least(speed * (width / (trace.weight * usual))[:, None], width, slots).optimum
    if problem == "min_total_duration_perf":
        return makespan_bound(np.where(trace.eligible(), trace.seconds, np.inf), width, slots)
    assert problem == "max_sum_throughput_perf"
    return largest_sum(speed, width, slots).optimum


def test_linear_programs_reach_the_optimum(given, gavel_data):
    for entry in given["lp"]:
        found = optimum_of(entry["problem"], trace_of_entry(entry, gavel_data))
        assert found == pytest.approx(entry["optimum"], rel=1e-6), entry


def rounds_of(entry, folder):
    trace = trace_of_entry(entry, folder)
    settings = ScheduleSettings(drop_short_steps=entry["failed"] > 0)
    (result,) = simulate(trace, [entry["policy"]], settings=settings, execution="rounds")
    return result


def test_rounds_without_a_solver_are_equal_as_printed(given, gavel_data):
    for entry in given["round_based"]:
        if entry["policy"] not in EXACT:
            continue
        result = rounds_of(entry, gavel_data)
        for key in ("makespan_s", "avg_jct_s", "p50_jct_s", "p95_jct_s"):
            assert getattr(result.summary, key) == pytest.approx(entry[key], abs=0.002), (entry, key)
        assert result.summary.avg_bounded_slowdown == pytest.approx(entry["avg_bounded_slowdown"], abs=1e-5)
        assert result.summary.killed == entry["failed"]
        assert result.schedule.pieces == entry["micro_tasks"]
        if "jct_s" in entry:
            taken = result.schedule.end
            assert np.abs(taken - np.array(entry["jct_s"], float)).max() < 0.002


def test_rounds_with_a_solver_lie_in_the_spread_or_below(given, gavel_data):
    for entry in given["round_based"]:
        if entry["policy"] in EXACT or entry["policy"] == "fifo" or entry.get("makespan_s") is None:
            continue
        result = rounds_of(entry, gavel_data)
        for key in ("makespan_s", "avg_jct_s"):
            most = entry.get("spread", {}).get(key, [entry[key]] * 2)[1]
            assert getattr(result.summary, key) <= 1.03 * most, (entry["trace"], entry["policy"], key)


def test_a_static_trace_ends_within_3_percent_of_the_bound_in_rounds(given, gavel_data):
    for entry in given["round_based"]:
        if entry["policy"] == "min_total_duration_perf" and entry["arrivals"] == "static":
            summary = rounds_of(entry, gavel_data).summary
            if summary.lp_bound_s > 100 * 360:
                assert summary.makespan_s <= 1.03 * summary.lp_bound_s, entry["trace"]


def test_the_makespan_policy_ends_static_traces_within_10_percent_of_the_bound(given, gavel_data):
    for entry in given["non_preemptive"]:
        if entry["policy"] == "eft" and ("static" in entry["trace"] or "minimize" in entry["trace"]):
            (result,) = simulate(trace_of_entry(entry, gavel_data), ["makespan"])
            assert result.summary.makespan_s <= 1.10 * result.summary.lp_bound_s, entry["trace"]


def test_careful_is_never_worse_than_eft_when_times_are_known(given, gavel_data):
    for entry in given["non_preemptive"]:
        if entry["policy"] == "eft":
            eft, careful = simulate(trace_of_entry(entry, gavel_data), ["eft", "careful"])
            assert careful.summary.avg_jct_s <= eft.summary.avg_jct_s * (1 + 1e-9), entry["trace"]
            assert careful.summary.makespan_s <= eft.summary.makespan_s * (1 + 1e-9), entry["trace"]


def test_eft_beats_fastest_and_round_robin_on_every_trace(given, gavel_data):
    for entry in given["non_preemptive"]:
        if entry["policy"] == "eft":
            eft, *others = simulate(trace_of_entry(entry, gavel_data), ["eft", "fastest", "round_robin"])
            assert all(eft.summary.avg_jct_s < other.summary.avg_jct_s for other in others), entry["trace"]
