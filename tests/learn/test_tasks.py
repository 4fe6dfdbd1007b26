"""Every task of the table, and the measures that they share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InvalidSetting, UnknownName
from apportion.learn import tasks
from apportion.learn.metrics import (
    BINARY,
    Interval,
    accuracy,
    bootstrap,
    counts,
    f1,
    over_seeds,
    precision,
    recall,
)
from apportion.learn.task import Task
from apportion.testing.task_checks import TaskChecks


class TestReachability(TaskChecks):
    task = tasks.load("reachability")


class TestDominance(TaskChecks):
    task = tasks.load("dominance")


class TestDatadep(TaskChecks):
    task = tasks.load("datadep")


class TestLiveness(TaskChecks):
    task = tasks.load("liveness")


class TestSubexpressions(TaskChecks):
    task = tasks.load("subexpressions")


class TestConfigRanking(TaskChecks):
    task = tasks.load("config_ranking")

    def test_a_perfect_answer_has_the_best_score_and_its_opposite_does_not(self) -> None:
        runtime = np.array([4, 2, 9, 2, 7])
        assert self.task.metrics["tau_b"](runtime, runtime) == 1.0
        assert self.task.metrics["tau_b"](runtime, -runtime) == -1.0


class TestDeviceMapping(TaskChecks):
    task = tasks.load("device-mapping")


class TestLoadBalance(TaskChecks):
    task = tasks.load("load-balance")


def test_every_task_of_the_table_is_checked_above() -> None:
    checked = {check.task.name for check in TaskChecks.__subclasses__()}
    assert checked == set(tasks)


def test_a_task_must_be_judged_by_one_of_its_own_metrics() -> None:
    with pytest.raises(UnknownName, match=r"No metric called 'speed'\. There are: f1"):
        Task("t", "Why?", 2, "cross-entropy", np.asarray, {"f1": lambda a, b: 0.0}, "speed", np.asarray)


TRUTH = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0])
SAID = np.array([1, 1, 0, 1, 0, 0, 0, 0, 0, 0])


def test_counts_are_true_and_false_positives_then_false_and_true_negatives() -> None:
    assert counts(TRUTH, SAID).tolist() == [2, 1, 1, 6]


def test_counts_can_be_kept_apart_for_each_graph_of_a_batch() -> None:
    assert counts(TRUTH, SAID, np.array([0, 3])).tolist() == [[2, 0, 1, 0], [0, 1, 0, 6]]


def test_precision_recall_f1_and_accuracy_of_ten_answers() -> None:
    c = counts(TRUTH, SAID)
    assert (precision(c), recall(c), f1(c), accuracy(c)) == pytest.approx((2 / 3, 2 / 3, 2 / 3, 0.8))


def test_saying_no_to_everything_scores_nothing_but_accuracy() -> None:
    c = counts(TRUTH, np.zeros(10))
    assert (precision(c), recall(c), f1(c), accuracy(c)) == (0.0, 0.0, 0.0, 0.7)


def test_answers_and_truths_must_be_of_one_length() -> None:
    with pytest.raises(InvalidSetting, match=r"\(3,\) decisions cannot be compared with \(2,\) truths"):
        counts(np.zeros(2), np.zeros(3))


@given(
    st.lists(st.tuples(*[st.integers(0, 50)] * 4), min_size=1, max_size=20), st.sampled_from(sorted(BINARY))
)
def test_a_bootstrap_interval_holds_only_possible_values(rows: list[tuple[int, ...]], name: str) -> None:
    interval = bootstrap(np.array(rows), BINARY[name], samples=50)
    assert 0 <= interval.low <= interval.high <= 1
    assert interval.value == BINARY[name](np.array(rows).sum(axis=0))


def test_instances_of_one_graph_are_drawn_together() -> None:
    c = np.array([[1, 0, 0, 0], [0, 0, 1, 0]])
    assert bootstrap(c, recall, groups=np.array([7, 7])) == Interval(0.5, 0.5, 0.5)
    apart = bootstrap(c, recall)
    assert (apart.low, apart.high) == (0.0, 1.0)


def test_the_interval_over_three_seeds_is_students() -> None:
    interval = over_seeds([0.9, 0.92, 0.94])
    assert interval.value == pytest.approx(0.92)
    assert interval.high - interval.value == pytest.approx(4.303 * 0.02 / 3**0.5)
    assert over_seeds([0.9]) == Interval(0.9, 0.9, 0.9)
