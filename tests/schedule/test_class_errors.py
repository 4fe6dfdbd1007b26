"""How far predictions of a class are trusted before and after its jobs have run."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.schedule import (
    Beliefs,
    JobTrace,
    ScheduleSettings,
    SchedulingProblem,
    SystemSlots,
    exact,
    policies,
)
from apportion.schedule.class_errors import LEAST_TRUST, MOST_TRUST, class_errors


def one_job_a_class(seconds, arrival=None):
    count, systems = seconds.shape
    return JobTrace(
        tuple(SystemSlots(name, 1) for name in "abcd"[:systems]), np.arange(count),
        np.zeros(count) if arrival is None else np.asarray(arrival, float), np.ones(count, np.int64), seconds,
        np.arange(count, dtype=np.int32), tuple(f"class {number}" for number in range(count)),
    )  # fmt: skip


def drawn(spread, errors):
    """Truth and prediction of 60 classes on four systems: log2 of the times."""
    drawing = np.random.default_rng(5)
    truth = drawing.normal(8, 2, (60, 1)) + np.array([0, 1, 2, 3]) + drawing.normal(0, spread, (60, 4))
    return truth, truth + drawing.normal(0, errors, (60, 4))


@pytest.mark.parametrize(("spread", "errors"), [(0.5, 1.0), (1.0, 1.0), (1.0, 0.5)])
def test_random_errors_are_trusted_as_far_as_classes_differ_more_than_errors_do(spread, errors):
    truth, predicted = drawn(spread, errors)
    trace = one_job_a_class(np.exp2(truth))
    found = class_errors(trace, Beliefs(np.exp2(predicted), np.full((60, 4), errors)))
    assert found.trust == pytest.approx(spread**2 / (spread**2 + errors**2), abs=0.1)
    assert np.allclose(found.deviation.sum(axis=0), 0, atol=1e-9)
    assert np.allclose(found.deviation.sum(axis=1), 0, atol=1e-9)


def test_a_predictor_that_draws_towards_the_usual_is_trusted_as_it_is():
    truth, _ = drawn(1.0, 1.0)
    usual = truth.mean(axis=1, keepdims=True) + np.array([-1.5, -0.5, 0.5, 1.5])
    predicted = usual + 0.3 * (truth - usual)
    found = class_errors(one_job_a_class(np.exp2(truth)), Beliefs(np.exp2(predicted), np.full((60, 4), 0.7)))
    assert found.trust == MOST_TRUST


def test_exact_times_are_trusted_wholly_and_too_few_classes_say_nothing():
    trace = one_job_a_class(np.array([[10.0, 20.0]]))
    assert class_errors(trace, exact(trace)).trust == 1
    few = class_errors(trace, Beliefs(trace.seconds, np.full((1, 2), 1.0)))
    assert few.trust == MOST_TRUST
    assert few.deviation.tolist() == [[0, 0]]


def test_a_system_where_a_class_cannot_run_has_no_deviation():
    seconds = np.array([[10.0, np.inf, 40.0], [10.0, 20.0, 40.0], [20.0, 10.0, 40.0]])
    found = class_errors(one_job_a_class(seconds), Beliefs(seconds, np.full((3, 3), 0.1)))
    assert np.isnan(found.deviation).tolist() == [[False, True, False], [False] * 3, [False] * 3]
    assert LEAST_TRUST <= found.trust <= MOST_TRUST


def test_careful_takes_a_class_that_is_predicted_unlike_all_others_to_be_mostly_a_wrong_prediction():
    # All classes take 10 s on a and 40 on b; predictions are off by up to a factor of two, those of the last by four.
    off = np.array(
        [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, -1], [0, 0], [1, -1], [-1, 1], [2.2, -2.2]]
    )
    truth = np.tile([10.0, 40.0], (10, 1))
    trace = one_job_a_class(truth, arrival=[1000.0 * number for number in range(10)])
    beliefs = Beliefs(truth * np.exp2(off), np.full((10, 2), 1.1))
    assert beliefs.seconds[9].argmin() == 1

    def system_of_last(learn):
        problem = SchedulingProblem(trace, beliefs, ScheduleSettings(learn=learn))
        return policies.load("careful")(problem).system[9]

    assert (system_of_last(False), system_of_last(True)) == (1, 0)
