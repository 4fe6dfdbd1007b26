"""Relative performance: vectors of every kind, measures on numbers worked out by hand, ROC and figures."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.metrics import Interval
from apportion.learn.relative.figures import distributions, roc_curves
from apportion.learn.relative.performance import (
    CENTRED,
    SLOWEST,
    as_json,
    bootstrap_groups,
    common_order,
    kendall,
    log_times_of,
    measures_of,
    order_of,
    r_squared,
    roc,
    vector_of,
)

TIMES = np.log2([[1.0, 2.0, 4.0], [8.0, 4.0, 16.0]])
SYSTEMS = ("a", "b", "c")
LOG_TIMES = arrays.arrays(np.float64, (5, 4), elements=st.floats(-6, 6))


def test_vectors_are_centred_or_in_parts_of_the_slowest_or_of_a_system() -> None:
    assert vector_of(TIMES).tolist() == [[-1, 0, 1], [0, -1, 1]]
    assert vector_of(TIMES, SLOWEST).tolist() == [[0.25, 0.5, 1], [0.5, 0.25, 1]]
    assert vector_of(TIMES, "b", SYSTEMS).tolist() == [[0.5, 1, 2], [2, 1, 4]]
    with pytest.raises(UnknownName, match=r"No target called 'slow'. Did you mean 'slowest'\?"):
        vector_of(TIMES, "slow", SYSTEMS)


@given(LOG_TIMES)
def test_every_kind_of_vector_keeps_the_order(times: np.ndarray) -> None:
    for target in (CENTRED, SLOWEST):
        back = log_times_of(vector_of(times, target), target)
        gaps, kept = np.diff(times, axis=1), np.diff(back, axis=1)
        # Parts of the slowest are told apart down to a thousandth of it.
        told = (times - times.max(axis=1, keepdims=True) > -9).all(axis=1)
        np.testing.assert_allclose(kept[told], gaps[told], atol=1e-9)


@given(LOG_TIMES, st.floats(-5, 5))
def test_the_truth_moved_by_a_constant_is_perfect(times: np.ndarray, constant: float) -> None:
    measures = measures_of(times, times + constant)
    assert measures["mae"] < 1e-9
    assert measures["regret"] == pytest.approx(1)


def test_measures_of_a_prediction_that_swaps_two_systems() -> None:
    said = np.log2([[1.0, 2.0, 4.0], [4.0, 8.0, 16.0]])
    measures = measures_of(TIMES, said)
    assert measures["order"] == 0.5
    assert measures["top1"] == 0.5
    assert measures["kendall"] == pytest.approx((1 + 1 / 3) / 2)
    assert measures["regret"] == pytest.approx(2**0.5)  # twice as long as the best in one of two
    assert measures["mae"] == pytest.approx(0.5 / 6)
    # The third system is the slowest of every run, so that it does not vary, and is left out of R².
    assert measures["r2"] == pytest.approx(1 - 0.0625 / 0.03125)
    with pytest.raises(InvalidSetting, match="cannot be compared"):
        measures_of(TIMES, said[:1])


def test_the_mean_explains_nothing_and_the_truth_everything() -> None:
    truth = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert r_squared(truth, np.tile(truth.mean(axis=0), (2, 1))) == 0
    assert r_squared(truth, truth) == 1
    assert r_squared(truth[:1], truth[:1]) == 0


def test_ties_are_neither_right_nor_wrong_for_kendall() -> None:
    truth = np.array([[1.0, 2.0, 3.0]])
    assert kendall(truth, np.array([[1.0, 1.0, 2.0]])) == pytest.approx(2 / 3)
    assert kendall(truth, -truth) == -1
    assert order_of(np.array([[2.0, 1.0, 1.0]])).tolist() == [[1, 2, 0]]


def test_resampling_draws_whole_groups() -> None:
    groups = ["a"] * 9 + ["b"]
    drawn = []

    def measure(rows: np.ndarray) -> dict[str, float]:
        drawn.append(len(rows))
        return {"rows": float(len(rows))}

    found = bootstrap_groups(groups, measure, samples=60)
    assert found["rows"].value == 10
    assert set(drawn) == {2, 10, 18}  # b twice, one of each, a twice
    assert (found["rows"].low, found["rows"].high) == (2, 18)
    assert as_json({"r2": Interval(0.123456, 0, 1)}) == {"r2": [0.1235, 0, 1]}


def test_the_roc_of_the_common_order() -> None:
    truth = np.array([[0.0, 1, 2], [0, 1, 3], [0, 2, 1], [1, 0, 2]])
    assert common_order(truth) == (0, 1, 2)
    perfect = roc(truth, truth)
    assert (perfect.prior, perfect.area) == (0.5, 1.0)
    assert roc(truth, truth[[2, 3, 0, 1]]).area == 0  # the others take their places
    assert roc(truth, np.zeros_like(truth)).area == 0.5
    alike = roc(truth[:2], truth[:2])  # every run has the common order: there is nothing to tell apart
    assert (alike.prior, alike.area) == (1.0, 0.5)


def test_figures_are_drawings_that_show_their_numbers() -> None:
    spread = ElementTree.fromstring(distributions("all", SYSTEMS, TIMES, marked=[0.5, 0.5, 1.0]))
    assert len(list(spread.iterfind("{*}circle"))) == 3
    curves = ElementTree.fromstring(roc_curves("roc", {"one": roc(TIMES, TIMES)}))
    assert [each.text for each in curves.iterfind("{*}text")][-1] == "one: area 1.00"
