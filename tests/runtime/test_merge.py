from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from apportion.runtime.merge import Undo, combine, strays, take_changes


def _bytes(values: list[int], kind: str = "i4") -> np.ndarray:
    return np.array(values, kind).view(np.uint8).copy()


def test_changes_of_every_copy_are_taken() -> None:
    home = _bytes([1, 2, 3, 4])
    assert take_changes(home, [_bytes([9, 2, 3, 4]), _bytes([1, 2, 3, 8])], "i4") == 0
    assert home.view("i4").tolist() == [9, 2, 3, 8]


def test_two_different_writes_to_one_place_are_a_conflict() -> None:
    home = _bytes([0, 0, 0])
    assert take_changes(home, [_bytes([1, 5, 0]), _bytes([1, 6, 7])], "i4") == 1


def test_the_same_write_by_two_devices_is_no_conflict() -> None:
    home = _bytes([0, 0])
    assert take_changes(home, [_bytes([4, 0]), _bytes([4, 0])], "i4") == 0


def test_a_nan_that_nobody_changed_is_no_change() -> None:
    nan = np.array([np.nan, 1.0], "f4")
    home = nan.view(np.uint8).copy()
    assert take_changes(home, [home.copy(), home.copy()], "f4") == 0


def test_sums_count_what_all_started_from_once() -> None:
    home = _bytes([10, 10], "u4")
    combine("sum", home, [_bytes([13, 10], "u4"), _bytes([11, 15], "u4")], "u4")
    assert home.view("u4").tolist() == [14, 15]


def test_a_sum_wraps_as_the_device_does() -> None:
    home = _bytes([2**32 - 1], "u4")
    combine("sum", home, [_bytes([0], "u4"), _bytes([1], "u4")], "u4")
    assert home.view("u4").tolist() == [2]


@given(st.lists(st.lists(st.integers(-100, 100), min_size=5, max_size=5), min_size=1, max_size=4))
def test_minima_and_maxima_are_those_of_all_copies(copies: list[list[int]]) -> None:
    for way, expected in (("min", np.min(copies, 0)), ("max", np.max(copies, 0))):
        start = 1000 if way == "min" else -1000
        home = _bytes([start] * 5)
        combine(way, home, [_bytes(copy) for copy in copies], "i4")
        assert home.view("i4").tolist() == expected.tolist()


def test_flips_of_every_copy_are_taken() -> None:
    home = _bytes([0b1100])
    combine("xor", home, [_bytes([0b1101]), _bytes([0b0100])], "i4")
    assert home.view("i4").tolist() == [0b0101]


def test_a_change_outside_the_promised_bytes_is_a_stray() -> None:
    before, after = _bytes([0, 0, 0, 0]), _bytes([1, 1, 0, 1])
    assert strays(before, after, [(0, 8)], "i4") == 1
    assert strays(before, after, [(0, 16)], "i4") == 0


def test_a_merge_can_be_undone() -> None:
    home = np.array([1, 2, 3, 4], np.int32)
    undo = Undo()
    copies = [np.array([9, 2, 3, 4], np.int32), np.array([8, 2, 7, 4], np.int32)]
    conflicts = take_changes(home.view(np.uint8), [c.view(np.uint8) for c in copies], "<i4", undo)
    combine("sum", home.view(np.uint8), [c.view(np.uint8) for c in copies[:1]], "<i4", undo)
    assert conflicts == 1
    undo.back()
    undo.back()
    assert home.tolist() == [1, 2, 3, 4]
