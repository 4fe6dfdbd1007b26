import pytest

from apportion.learn.metrics import Interval
from apportion.report.numbers import in_time, with_interval


def test_an_estimate_stands_before_its_interval():
    assert with_interval((1.02, 1.0, 1.044)) == "1.020 (1.000 to 1.044)"
    assert with_interval(Interval(1.02, 1.0, 1.044), ".2f") == "1.02 (1.00 to 1.04)"
    assert with_interval({"value": 0.5, "low": 0.25, "high": 0.75}, ".0%") == "50% (25% to 75%)"


def test_an_interval_that_is_a_point_is_left_out():
    assert with_interval((0.5, 0.5, 0.5)) == "0.500"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"), (2.5e-8, "25 ns"), (1.5e-5, "15 µs"), (1.5e-3, "1.5 ms"), (1.5, "1.5 s"), (59.0, "59 s"),
        (90.0, "1.5 min"), (7300.0, "2.0 h"), (2.5 * 86400, "2.5 d"),
    ],
)  # fmt: skip
def test_a_time_has_the_unit_that_fits(seconds, words):
    assert in_time(seconds) == words
