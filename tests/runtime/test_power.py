"""Power from meters that move seldom, begin again, or do not move at all."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from apportion.runtime.observe import Observer
from apportion.runtime.power import drawn, idle


def _meter(watts: float, every: float, name: str = "card 0") -> Observer:
    """A meter that moves so often, and is right whenever it does."""
    return Observer(name, lambda: watts * (time.perf_counter() // every) * every, energy=True)


def test_a_meter_that_moves_seldom_is_read_between_two_moves() -> None:
    found = drawn([_meter(80.0, 0.1)], lambda: time.sleep(0.001), seconds=0.15)
    # Both ends are seen up to a hundredth of a second late, and later on a machine that is busy.
    assert found.watts["card 0"] == pytest.approx(80.0, rel=0.5)
    assert found.seconds >= 0.15
    assert found.repeats >= 2


def test_a_meter_that_does_not_move_says_nothing_and_ends() -> None:
    found = idle([Observer("package 0", lambda: 7.0, energy=True)], seconds=0.03)
    assert found.watts == {}
    assert found.seconds >= 4 * 0.03


def test_a_meter_that_begins_again_is_read_from_there() -> None:
    readings: Callable[[], float] = iter(
        [100.0, 101.0, 102.0, 1.0, *(1.0 + k for k in range(1, 10**6))]
    ).__next__
    found = drawn([Observer("package 0", readings, energy=True)], lambda: time.sleep(0.002), seconds=0.1)
    assert found.watts["package 0"] > 0


def test_without_meters_something_is_repeated_all_the_same() -> None:
    found = drawn([], lambda: time.sleep(0.001), seconds=0.05)
    assert (found.watts, found.repeats > 1) == ({}, True)
