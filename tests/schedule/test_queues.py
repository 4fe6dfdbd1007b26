"""Queues, backfilling and late binding on traces small enough to work out by hand, and invariants on drawn ones."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings as limits
from hypothesis import strategies as st

from apportion.schedule import (
    Beliefs,
    JobTrace,
    ScheduleSettings,
    SchedulingProblem,
    SystemSlots,
    exact,
    policies,
    simulate,
    with_errors,
)
from apportion.schedule.queues import by_events, in_order

inf = float("inf")


def trace_of(rows, slots, **more):
    """Jobs as (arrival, width, seconds on each system); the systems are called a, b, …"""
    systems = tuple(SystemSlots(name, count) for name, count in zip("abcdefgh", slots, strict=False))
    count = len(rows)
    defaults = {"program": np.zeros(count, np.int32), "programs": ("p",)}
    return JobTrace(
        systems,
        np.arange(count),
        np.array([float(row[0]) for row in rows]),
        np.array([row[1] for row in rows], np.int64),
        np.array([[float(value) for value in row[2]] for row in rows]),
        **(defaults | more),
    )


def run(policy, trace, **options):
    beliefs = options.pop("beliefs", None) or exact(trace)
    return policies.load(policy)(SchedulingProblem(trace, beliefs, ScheduleSettings(**options)))


def test_easy_lets_a_short_job_pass_a_wide_one_that_waits():
    trace = trace_of([(0, 2, [10]), (1, 3, [10]), (2, 1, [5]), (3, 1, [20])], [3])
    plain, easy = run("fastest", trace), run("easy_fastest", trace)
    assert plain.start.tolist() == [0, 10, 20, 20]
    assert easy.start.tolist() == [0, 10, 2, 20]


def test_conservative_backfilling_delays_nobody_in_the_queue():
    trace = trace_of([(0, 2, [10]), (1, 3, [10]), (1, 3, [10]), (2, 1, [8]), (2, 1, [30])], [3])
    found = run("fastest", trace, backfill="conservative")
    assert found.start.tolist() == [0, 10, 20, 2, 30]


def test_eft_waits_for_a_fast_system_when_that_ends_sooner():
    trace = trace_of([(0, 1, [10, 100]), (0, 1, [10, 100]), (0, 1, [10, 15])], [1, 1])
    found = run("eft", trace)
    assert found.system.tolist() == [0, 0, 1]
    assert found.end.tolist() == [10, 20, 15]


def test_late_binding_repairs_a_wrong_prediction():
    # The first job was believed to take 100 s on a, and takes 10: who was to wait for b can start there at once.
    trace = trace_of([(0, 1, [10, inf]), (1, 1, [20, 30]), (1, 1, [20, 30])], [1, 1])
    beliefs = Beliefs(np.array([[100, inf], [20, 30], [20, 30]], float))
    early, late = run("eft", trace, beliefs=beliefs), run("eft_late", trace, beliefs=beliefs)
    assert early.system.tolist() == [0, 1, 1]
    assert early.end.tolist() == [10, 31, 61]
    assert late.system.tolist() == [0, 1, 0]
    assert late.end.tolist() == [10, 31, 30]


def test_shortest_first_serves_short_jobs_and_an_aged_one_before_them():
    trace = trace_of([(0, 1, [100]), (1, 1, [50]), (2, 1, [10]), (3, 1, [10])], [1])
    assert run("sjf", trace).start.tolist() == [0, 120, 100, 110]
    aged = trace_of([(0, 1, [700]), (1, 1, [60]), (699, 1, [59])], [1])
    assert run("sjf", aged).start.tolist() == [0, 700, 760]  # it had waited more than 10 times its 60 s


def test_a_job_that_outlives_its_limit_is_killed_or_comes_back_with_twice_the_limit():
    trace = trace_of([(0, 1, [35])], [1], limit=np.array([10.0]))
    killed = run("easy_fastest", trace)
    assert (killed.killed.tolist(), killed.end.tolist(), killed.lost_slot_seconds) == ([True], [10.0], 10.0)
    again = run("easy_fastest", trace, requeue=True)
    assert (again.killed.tolist(), again.end.tolist(), again.lost_slot_seconds) == ([False], [65.0], 30.0)
    summary = next(simulate(trace, ["easy_fastest"])).summary
    assert (summary.completed, summary.killed) == (0, 1)


def test_careful_learns_from_a_finished_job_which_system_its_class_is_slow_on():
    # Predicted: a takes 10 s, b 12. In truth a takes 50: after the first run b is known to be better.
    rows = [(0, 1, [50, 12])] + [(100 * number, 1, [50, 12]) for number in range(1, 6)]
    trace = trace_of(rows, [1, 1])
    beliefs = Beliefs(np.tile([10.0, 12.0], (6, 1)), np.full((6, 2), 1.0))
    assert run("careful", trace, beliefs=beliefs).system.tolist() == [0, 1, 1, 1, 1, 1]
    assert run("careful", trace, beliefs=beliefs, learn=False).system.tolist() == [0] * 6


def wrongly_predicted():
    """Many jobs of a class that is predicted to be slow on b, where it is fast."""
    rows = [(2.0 * number, 1, [10, 1]) for number in range(2000)]
    return trace_of(rows, [8, 8]), Beliefs(
        np.tile([10.0, 40.0], (len(rows), 1)), np.full((len(rows), 2), 1.5)
    )


def test_exploring_tries_a_system_that_many_jobs_of_the_class_would_gain_from():
    trace, beliefs = wrongly_predicted()
    plain, found = (
        run("careful", trace, beliefs=beliefs),
        run("careful", trace, beliefs=beliefs, explore=0.01),
    )
    assert (plain.explored, plain.restarted) == (0, 0)
    assert found.explored >= 1
    assert (found.end - trace.arrival).mean() < 0.5 * (plain.end - trace.arrival).mean()


def test_a_first_run_that_takes_twice_what_it_would_elsewhere_is_started_again_there():
    # Predicted: a takes 10 s, b 20. In truth the first run takes 5,000 s on a.
    rows = [(0, 1, [5000, 20])] + [(0, 1, [30, 30])] * 400
    program = np.array([0] + [1] * 400, np.int32)
    trace = trace_of(rows, [2, 2], program=program, programs=("slow", "usual"))
    beliefs = Beliefs(
        np.array([[10.0, 20.0]] + [[30.0, 30.0]] * 400), np.array([[1.0, 0.0]] + [[0.0, 0.0]] * 400)
    )
    patient = run("careful", trace, beliefs=beliefs)
    found = run("careful", trace, beliefs=beliefs, explore=0.01)
    assert (patient.system[0], patient.end[0]) == (0, 5000)
    assert (found.system[0], found.restarted, found.lost_slot_seconds) == (1, 1, 40.0)
    assert (found.start[0], found.end[0]) == (
        60.0,
        80.0,
    )  # at once when a slot of b is free: it kept its place
    assert found.notes == ("1 job was started again elsewhere",)
    # Where the budget does not allow it, it stays.
    assert run("careful", trace, beliefs=beliefs, explore=0.001).restarted == 0


@limits(max_examples=30, deadline=None)
@drawn(st.integers(0, 1000), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.002, 0.01]))
def test_what_exploring_loses_stays_within_its_part_of_slot_time(seed, sigma, explore):
    drawing = np.random.default_rng(seed)
    program = drawing.integers(0, 6, 200).astype(np.int32)
    seconds = np.exp2(drawing.normal(6, 1.5, (6, 3)))[program]
    arrival = np.sort(drawing.integers(0, 400, 200)).astype(float)
    rows = [(at, 1, times) for at, times in zip(arrival, seconds, strict=True)]
    trace = trace_of(rows, [3, 4, 5], program=program, programs=tuple("uvwxyz"))
    found = run("careful", trace, beliefs=with_errors(trace, sigma, seed), explore=explore)
    again = run("careful", trace, beliefs=with_errors(trace, sigma, seed), explore=explore)
    # What was believed to wait may be more than was to do: by twice the error of predictions.
    work = trace.seconds[np.arange(200), found.system].sum() + found.lost_slot_seconds
    assert found.lost_slot_seconds <= explore * max(work, 12 * found.end.max()) * 2 ** (2 * sigma)
    assert np.allclose(found.end - found.start, trace.seconds[np.arange(200), found.system])
    assert np.array_equal(found.end, again.end)


def test_runs_that_differ_teach_how_much_repeated_runs_differ():
    # The class takes 10 s on a, and 8 or 24 s on b, in turn: after some runs b is known to be the worse.
    rows = [(100.0 * number, 1, [10, 8 if number % 2 == 0 else 24]) for number in range(40)]
    trace = trace_of(rows, [1, 1])
    beliefs = Beliefs(np.tile([10.0, 6.0], (40, 1)), np.full((40, 2), 1.0))
    assert run("careful", trace, beliefs=beliefs).system[-20:].tolist() == [0] * 20


def test_an_abstaining_prediction_leaves_the_job_to_its_user_then_the_default_then_turns():
    rows = [(0, 1, [10, 10])] * 4
    beliefs = Beliefs(np.full((4, 2), 10.0), abstains=np.ones(4, bool))
    assert run("eft", trace_of(rows, [9, 9]), beliefs=beliefs).system.tolist() == [0, 1, 0, 1]
    assert run("eft", trace_of(rows, [9, 9]), beliefs=beliefs, default="b").system.tolist() == [1] * 4
    chosen = trace_of(rows, [9, 9], chosen=np.array([0, -1, 0, -1], np.int32))
    found = run("eft", chosen, beliefs=beliefs, default="b")
    assert found.system.tolist() == [0, 1, 0, 1]
    assert found.fallback.all()


@st.composite
def traces(draw):
    count = draw(st.integers(1, 25))
    slots = draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))
    arrivals = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
    rows = []
    for arrival in arrivals:
        times = [draw(st.sampled_from([1.0, 2.5, 7.0, 20.0, inf])) for _ in slots]
        if all(time == inf for time in times):
            times[0] = 3.0
        rows.append((arrival, draw(st.integers(1, 2)), times))
    return trace_of(rows, slots)


@limits(max_examples=60, deadline=None)
@drawn(
    traces(),
    st.sampled_from(sorted(set(policies) - {"user", "user_rr", "allox"})),
    st.sampled_from([0.0, 1.0]),
)
def test_every_job_runs_once_after_it_arrives_within_the_slots_and_again_the_same(trace, policy, sigma):
    beliefs = with_errors(trace, sigma, seed=1)
    found, again = run(policy, trace, beliefs=beliefs), run(policy, trace, beliefs=beliefs)
    assert (found.start >= trace.arrival).all()
    rows = np.arange(len(trace))
    assert np.allclose(found.end - found.start, trace.seconds[rows, found.system])
    for system, count in enumerate(trace.slots):
        mine = found.system == system
        for instant in found.start[mine]:
            there = mine & (found.start <= instant) & (instant < found.end)
            assert trace.width[there].sum() <= count
    assert np.array_equal(found.start, again.start)
    assert np.array_equal(found.system, again.system)


@limits(max_examples=40, deadline=None)
@drawn(traces())
def test_no_schedule_is_shorter_than_the_bound(trace):
    for result in simulate(trace, ["eft", "makespan", "careful"]):
        assert result.summary.makespan_s >= result.summary.lp_bound_s * (1 - 1e-9)


@limits(max_examples=40, deadline=None)
@drawn(traces())
def test_the_plain_loop_and_the_events_agree_on_queues_without_holes(trace):
    problem = SchedulingProblem(trace, exact(trace))
    plain, events = in_order(problem), by_events(problem)
    assert np.array_equal(plain.system, events.system)
    assert np.array_equal(plain.start, events.start)


@st.composite
def wide_traces(draw):
    """Jobs of several widths that come closely after each other: earliest finish leaves holes."""
    slots = draw(st.lists(st.integers(3, 6), min_size=1, max_size=3))
    rows, arrival = [], 0
    for _ in range(draw(st.integers(5, 40))):
        arrival += draw(st.sampled_from([0, 0, 1, 3]))
        times = [draw(st.sampled_from([1.0, 2.5, 7.0, 20.0, inf])) for _ in slots]
        rows.append((arrival, draw(st.integers(1, 3)), times if min(times) < inf else [3.0] * len(slots)))
    return trace_of(rows, slots)


@limits(max_examples=150, deadline=None)
@drawn(wide_traces())
def test_with_true_times_careful_ends_no_job_later_than_earliest_finish(trace):
    plain, found = run("eft", trace), run("careful", trace)
    assert (found.end <= plain.end).all()


def test_careful_fills_the_hole_before_a_wide_job():
    # Earliest finish puts the third job behind the second, which needs all slots; two of them are empty until 10.
    trace = trace_of([(0, 1, [10]), (0, 3, [5]), (1, 1, [9]), (1, 2, [4])], [3])
    assert run("eft", trace).end.tolist() == [10, 15, 24, 19]
    assert run("careful", trace).end.tolist() == [10, 15, 10, 19]


@pytest.mark.parametrize(("first", "start", "system"), [(9.5, 9.5, 0), (10.0, 10.0, 0), (30.0, 10.0, 1)])
def test_careful_gives_up_its_plan_when_a_time_is_not_what_was_claimed_to_be_exact(first, start, system):
    # The first job is to end at 10; the second is planned behind it, and would end on b at 21.
    trace = trace_of([(0, 1, [first, inf]), (9, 1, [10, 12])], [1, 1],
                     program=np.array([0, 1], np.int32), programs=("p", "q"))  # fmt: skip
    found = run("careful", trace, beliefs=Beliefs(np.array([[10, inf], [10, 12.0]])))
    assert (found.start[1], found.system[1]) == (start, system)


def test_the_oracle_is_the_same_policy_given_the_truth():
    trace = trace_of([(number, 1, [10 + number % 3, 12]) for number in range(30)], [1, 1])
    wrong = with_errors(trace, 2.0, seed=3)
    oracle, known = simulate(trace, ["oracle_eft"], beliefs=wrong), simulate(trace, ["eft"])
    assert np.array_equal(next(oracle).schedule.start, next(known).schedule.start)


def test_a_million_jobs_cost_no_more_each_than_fifty_thousand():
    def per_job(count):
        drawing = np.random.default_rng(0)
        seconds = drawing.lognormal(5, 1, count)[:, None] * drawing.uniform(0.5, 2, (count, 4))
        rate = 0.85 * 800 / seconds.min(axis=1).mean()
        rows = trace_of([(0, 1, [1.0, 1.0, 1.0, 1.0])], [200] * 4)
        trace = replace(
            rows, job=np.arange(count), arrival=np.cumsum(drawing.exponential(1 / rate, count)),
            width=np.ones(count, np.int64), seconds=seconds, program=np.zeros(count, np.int32),
        )  # fmt: skip
        problem = SchedulingProblem(trace, exact(trace))
        began = time.process_time()
        policies.load("easy_fastest")(problem)
        return (time.process_time() - began) / count

    small, large = min(per_job(50_000) for _ in range(2)), per_job(500_000)
    assert large < 3 * small
    assert large < 1 / 80_000


def test_no_learning_needs_no_sigma():
    trace = trace_of([(0, 1, [10, 20])] * 5, [1, 1])
    assert run("careful", trace).end.max() == pytest.approx(40)
