"""The scale on which a search compares values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InvalidSetting
from apportion.learn.tuning.gaussian_process import Prior
from apportion.learn.tuning.scale import Scale
from apportion.learn.tuning.search import View

VALUES = np.array([1.0, 2.0, 4.0, 8.0, 4_000.0])


def test_below_the_median_values_count_by_their_logarithms_and_above_less_and_less():
    targets = Scale.of(VALUES, slow_reach=0.5).targets(VALUES)
    steps = np.diff(targets)
    assert steps[:2] == pytest.approx([math.log(2)] * 2)
    assert steps[2] == pytest.approx(math.log(2) * math.log(2))  # as far above as the reach: log1p(1) of it
    assert steps[3] < 2 * math.log(2) < math.log(500)


def test_without_a_reach_all_count_by_their_logarithms():
    assert Scale.of(VALUES).targets(VALUES) == pytest.approx(np.log(VALUES))


def test_what_a_target_means_is_no_further_off_than_what_was_measured():
    scale = Scale.of(VALUES, slow_reach=0.5)
    assert scale.logs(np.array([1e6])) == pytest.approx([2 * math.log(4_000)])


def test_values_that_may_be_zero_or_less_are_taken_as_they_are():
    values = np.array([-3.0, -1.0, 0.0, 2.0])
    assert not Scale.of(values).by_log
    assert Scale.of(values).targets(values) == pytest.approx(values)


@given(
    st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=30),
    st.sampled_from([0.1, 0.5, 2.0, math.inf]),
)
def test_a_scale_keeps_the_order_and_can_be_undone(values, slow_reach):
    found = np.array(sorted(values))
    scale = Scale.of(found, slow_reach=slow_reach)
    targets = scale.targets(found)
    assert (np.diff(targets) >= 0).all()
    assert scale.values(scale.logs(targets)) == pytest.approx(found, rel=1e-6)


def test_a_reach_is_more_than_nothing():
    with pytest.raises(InvalidSetting, match=r"slow_reach must be more than 0, not 0\.0"):
        View(Prior(), slow_reach=0.0)
