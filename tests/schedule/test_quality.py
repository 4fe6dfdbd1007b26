"""The numbers of a schedule, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.errors import InvalidSetting
from apportion.schedule import Beliefs, JobTrace, SystemSlots, simulate


@pytest.fixture
def trace():
    """Four jobs of two classes and two users; a has two slots, b one. One after another on a, but for the last."""
    return JobTrace(
        (SystemSlots("a", 2), SystemSlots("b", 1)),
        np.arange(4), np.array([0.0, 0.0, 10.0, 30.0]), np.array([2, 2, 1, 1]),
        np.array([[20.0, np.inf], [40.0, np.inf], [100.0, 30.0], [np.inf, 20.0]]),
        np.array([0, 0, 1, 1], np.int32), ("wide", "slim"),
        user=np.array([0, 1, 1, 1], np.int32), users=("ann", "bob"),
    )  # fmt: skip


def summary(trace, policy="eft", **options):
    return next(simulate(trace, [policy], **options)).summary


def test_completion_wait_and_slowdown_have_their_percentiles(trace):
    found = summary(trace)  # ends at 20, 60, 40, 60; starts at 0, 20, 10, 40
    assert (found.makespan_s, found.avg_jct_s, found.avg_wait_s) == (60, 35, 7.5)
    assert found.p99_jct_s == pytest.approx(np.percentile([20, 60, 30, 30], 99))
    assert (found.p50_wait_s, found.p95_wait_s) == (5, pytest.approx(np.percentile([0, 20, 0, 10], 95)))
    assert found.p99_wait_s == pytest.approx(np.percentile([0, 20, 0, 10], 99))
    assert found.p50_bounded_slowdown == found.p50_bounded_slowdown_fastest == 1.25  # of 1, 1.5, 1, 1.5


def test_each_system_has_its_own_use(trace):
    found = summary(trace)
    assert found.utilisation_by_system == {"a": 1.0, "b": pytest.approx(50 / 60)}
    assert found.utilisation == pytest.approx((120 + 50) / 180)


def test_the_ratio_to_the_bound_is_that_of_makespans(trace):
    found = summary(trace)
    assert found.lp_bound_s == pytest.approx(60)
    assert found.lp_ratio == pytest.approx(1)


def test_fairness_is_told_of_the_worst_served_and_of_users(trace):
    # 35 s in the mean of 60: 140/60 jobs are there at once. An equal share of a is 2 / (7/3 * width), of b 1 / (7/3).
    found = summary(trace)
    share = 3 / 7
    speeds = np.array([(1 / 20) / (share / 20), (1 / 60) / (share / 40),
                       (1 / 30) / ((6 / 7 / 100 + share / 30) / (9 / 7)), (1 / 30) / (share / 20)])  # fmt: skip
    assert found.fairness_least == pytest.approx(speeds.min())
    users = np.array([speeds[0], speeds[1:].mean()])
    assert found.fairness_jain_users == pytest.approx(users.sum() ** 2 / (2 * (users**2).sum()))
    assert summary(replace(trace, user=None, users=())).fairness_jain_users is None


def test_means_have_an_interval_over_resampled_classes(trace):
    found = summary(trace)
    assert found.avg_jct_s_95 == (30, 40)  # both classes drawn twice: 40 or 30
    assert found.avg_bounded_slowdown_fastest_95 == (1.25, 1.25)
    alike = replace(trace, program=np.zeros(4, np.int32), programs=("one",))
    assert summary(alike).avg_jct_s_95 is None


def test_the_first_and_last_jobs_can_be_left_out_of_means(trace):
    found = summary(trace, trim=0.25)
    assert (found.avg_jct_s, found.avg_wait_s) == (45, 10)  # the second and third job
    assert (found.makespan_s, found.jobs, found.completed) == (60, 4, 4)
    with pytest.raises(InvalidSetting, match=r"from 0 to less than 0\.5, not 0\.5"):
        summary(trace, trim=0.5)


def test_runs_that_were_killed_are_lost_slot_seconds(trace):
    found = summary(replace(trace, limit=np.array([np.inf, 15.0, np.inf, np.inf])))
    assert (found.killed, found.lost_slot_s) == (1, 30)


def test_a_head_that_starts_late_is_told():
    # The head holds slots from 10 on; what runs until then was believed to end at 10 and ends at 50.
    trace = JobTrace(
        (SystemSlots("a", 2),), np.arange(3), np.array([0.0, 1.0, 2.0]), np.array([1, 2, 1]),
        np.array([[50.0], [10.0], [5.0]]), np.zeros(3, np.int32), ("p",),
    )  # fmt: skip
    beliefs = Beliefs(np.array([[10.0], [10.0], [5.0]]))
    found = summary(trace, "easy_fastest", beliefs=beliefs)
    assert found.head_delay_s == 40
