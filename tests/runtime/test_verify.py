"""When results of two compilers count as the same."""

from __future__ import annotations

import numpy as np

from apportion.runtime.verify import Exactness, difference

SINGLE = Exactness(computed_in=4)


def test_what_went_through_single_precision_need_not_agree_in_double() -> None:
    found, expected = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0 + 1e-6, 3.0])
    assert difference(found, expected) == ("1 of 3 elements differ, first element 1: 2.0 against 2.000001")
    assert difference(found, expected, SINGLE) is None
    assert difference(found, np.array([1.0, 2.1, 3.0]), SINGLE) is not None


def test_integers_are_compared_to_the_bit_whatever_they_went_through() -> None:
    assert difference(np.array([7]), np.array([8]), SINGLE) is not None


def test_fast_mathematics_leaves_open_what_is_not_finite() -> None:
    found, expected = np.array([0.0, 1.0]), np.array([np.nan, 1.0])
    assert difference(found, expected, Exactness.of(4, "-cl-mad-enable")) is not None
    fast = Exactness.of(4, "-cl-mad-enable -cl-fast-relaxed-math")
    assert difference(found, expected, fast) is None
    assert difference(np.array([0.0, 2.0]), expected, fast) is not None


def test_relaxed_mathematics_is_compared_in_fewer_digits() -> None:
    found, expected = np.array([1.0, 2.0], np.float32), np.array([1.0, 2.0006], np.float32)
    assert difference(found, expected, Exactness.of(4, "-cl-std=CL1.2")) is not None
    relaxed = Exactness.of(4, "-cl-unsafe-math-optimizations")
    assert difference(found, expected, relaxed) is None
    assert difference(found, np.array([1.0, 2.01], np.float32), relaxed) is not None


def test_subnormal_singles_may_be_zero_and_doubles_may_not() -> None:
    assert difference(np.zeros(2, np.float32), np.array([0, 1e-40], np.float32)) is None
    assert difference(np.zeros(2), np.array([0, 7e-310]), SINGLE) is None
    assert difference(np.zeros(2), np.array([0, 7e-310])) is not None
    assert difference(np.zeros(2, np.float32), np.array([0, 1e-30], np.float32)) is not None


def test_structures_are_compared_by_what_stands_in_them() -> None:
    kind = np.dtype({"names": ["a", "n"], "formats": ["f4", "i4"], "offsets": [0, 8], "itemsize": 16})
    expected = np.array([(1.0, 2), (3.0, 4)], kind)
    found = expected.copy()
    found["a"][1] += 1e-6
    assert difference(found, expected) is None
    found["n"][0] = 3
    assert difference(found, expected) == "1 of 2 elements differ, first element 0: (1.0, 3) against (1.0, 2)"
    found = expected.copy()
    found["a"][1] = np.nan
    assert difference(found, expected) is not None
