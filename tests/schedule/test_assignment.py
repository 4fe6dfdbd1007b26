"""The assignment of jobs to places in queues, beside SciPy's on the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from apportion import _native
from apportion.schedule.assignment import CANNOT, first_of_each_slot


def by_scipy(seconds, age):
    count, slots = seconds.shape
    places = np.arange(1, count + 1)
    cost = places[None, :, None] * seconds[:, None, :] + age[:, None, None]
    return linear_sum_assignment(cost.reshape(count, count * slots))[1]


@pytest.mark.parametrize("seed", range(60))
def test_jobs_get_the_places_that_scipy_gives_them_also_where_slots_are_alike(seed):
    drawing = np.random.default_rng(seed)
    count, kinds = drawing.integers(1, 14), drawing.integers(1, 4)
    # Small whole numbers make many sums equal, and slots of a kind always are.
    times = (
        drawing.integers(1, 4, (count, kinds)) * 1.0
        if seed % 3 == 0
        else drawing.uniform(1, 100, (count, kinds))
    )
    if seed % 5 == 0:
        times[drawing.random(times.shape) < 0.1] = CANNOT
    seconds = np.repeat(times, drawing.integers(1, 5, kinds), axis=1)
    age = drawing.uniform(0, 50, count) if seed % 2 else np.zeros(count)
    assert _native.least_completions(seconds, age).tolist() == by_scipy(seconds, age).tolist()


def test_the_first_of_each_slot_is_the_one_farthest_from_the_end_of_its_queue():
    # The sum is least if the long job runs last on a, behind both short ones; nothing can run on b.
    seconds = np.array([[10.0, CANNOT], [1.0, CANNOT], [2.0, CANNOT]])
    assert first_of_each_slot(seconds, np.zeros(3)) == [(1, 0)]


@pytest.mark.parametrize(
    ("seconds", "age"), [([[0.0]], [0.0]), ([[np.inf]], [0.0]), ([[1.0]], [np.nan]), ([[1.0]], [0.0, 0.0])]
)
def test_times_that_are_none_are_refused(seconds, age):
    with pytest.raises(ValueError, match=r"must be|needs an age"):
        _native.least_completions(np.array(seconds), np.array(age))
