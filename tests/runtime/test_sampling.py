from __future__ import annotations

from itertools import count

import pytest

from apportion.errors import InvalidSetting
from apportion.runtime.sampling import Repeats, measure, summary


def test_the_interval_of_the_median_comes_from_order_statistics() -> None:
    # Of ten values, the second and the ninth hold the median with 97.9 %; the third and the eighth with 89 %.
    found = summary([float(i) for i in range(10)])
    assert (found.median, found.low, found.high, found.count) == (4.5, 1.0, 8.0, 10)


def test_few_values_give_their_whole_range() -> None:
    found = summary([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)


def test_repeats_end_when_the_interval_is_narrow() -> None:
    found, values = measure(lambda: 1.0, Repeats(least=4, most=50))
    assert (found.width, len(values)) == (0.0, 4)


def test_repeats_end_at_the_most_when_it_never_is() -> None:
    numbers = count(1)
    _, values = measure(lambda: float(next(numbers)), Repeats(least=2, most=7, warm_up=3))
    assert values == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]


def test_nothing_measured_has_no_summary() -> None:
    with pytest.raises(InvalidSetting, match="Nothing was measured"):
        summary([])


def test_impossible_repeats_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="least and most must be 1 <= least <= most, not 9 and 3"):
        Repeats(least=9, most=3)
