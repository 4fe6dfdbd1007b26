"""How near chosen cuts come to the best: measured for real on two devices, and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.sampling import Measured
from apportion.suite import problem_of
from reproduction.efficiency.page import curves, mean_with_interval, page
from reproduction.efficiency.rounds import Budget, Row, _after, _nth, _ratio, _Rounds, evaluate, row_from

BUDGET = Budget(seconds=0.1, rounds=5, cut_repeats=1)


@pytest.fixture(scope="module")
def pair() -> Iterator[OpenCLBackend]:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    options = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(options, Limits(seconds=20)) as backend:
        yield backend


def test_a_kernel_is_measured_alone_at_every_cut_and_as_chosen(pair: OpenCLBackend) -> None:
    everything = {"0", "0.1", "0.5", "0.9", "1"}
    for _ in range(3):  # on a busy machine a launch may take so long that cuts beyond it are left out
        (row,) = evaluate([problem_of("triad")], pair, size="small", budget=BUDGET)
        if row.failure or everything <= set(row.curve):
            break
    assert not row.failure
    assert row.verified
    assert everything <= set(row.curve)
    assert set(row.alone) == {"cpu", "cpu2"}
    assert row.settled is not None
    assert row.rounds == 5
    assert row.settled.count == 5 - row.disturbed
    assert [len(turn) for turn in row.tries] == [8] * 5
    assert row.tries[0][0][0] == pytest.approx(row.first_shares["cpu"], abs=1e-3)
    for measured in (
        row.oracle, row.first, row.lasting, row.efficiency, row.first_efficiency, row.lasting_efficiency,
        row.against_best, row.lasting_against_best,
    ):  # fmt: skip
        assert measured is not None
        assert 0 < measured.low <= measured.median <= measured.high
    assert sum(row.settled_shares.values()) == pytest.approx(1)
    assert row_from(json.loads(json.dumps(row.as_json()))) == row


def test_a_kernel_that_cannot_be_shared_has_no_curve_and_one_device(pair: OpenCLBackend) -> None:
    (row,) = evaluate([problem_of("append_odd")], pair, size="small", budget=BUDGET)
    assert row.obstacle
    assert row.curve == {}
    assert sorted(row.settled_shares.values()) == [0.0, 1.0]
    assert row.oracle_share in (0.0, 1.0)


def test_every_kernel_of_a_problem_works_on_what_the_one_before_left(pair: OpenCLBackend) -> None:
    problem = problem_of("canny")
    rows = list(evaluate([problem], pair, size="small", budget=BUDGET))
    assert [row.kernel for row in rows] == ["canny_smooth", "canny_gradient", "canny_thin", "canny_edges"]
    assert not [row.failure for row in rows if row.failure]


def test_what_fails_is_a_row_with_its_reason_and_what_is_done_is_left_out(pair: OpenCLBackend) -> None:
    (row,) = evaluate([problem_of("triad")], pair, size="small", devices=["gpu9"], budget=BUDGET)
    assert row.failure.startswith("No device called 'gpu9'")
    done = frozenset({("triad", "triad")})
    assert list(evaluate([problem_of("triad")], pair, size="small", budget=BUDGET, done=done)) == []


def _row(kernel: str, settled: float, against: float) -> Row:
    def one(value: float) -> Measured:
        return Measured(value, 0.9 * value, 1.1 * value, 7)

    return Row(
        kernel, kernel, 1 << 20, 1 << 22, {"cpu": "a CPU", "gpu": "a GPU"}, merge={"c": "slice"}, verified=True,
        alone={"cpu": one(30.0), "gpu": one(12.0)}, curve={"0": 12.0, "0.5": 15.0, "0.2": 10.0, "1": 30.0},
        oracle_share=0.2, oracle=one(10.0), first_shares={"cpu": 0.5, "gpu": 0.5}, first=one(15.0),
        settled_shares={"cpu": 0.25, "gpu": 0.75}, settled=one(10.0 / settled),
        first_efficiency=one(0.67), efficiency=one(settled), against_best=one(against),
        lasting=one(10.0), lasting_efficiency=one(settled + 0.01), lasting_against_best=one(against - 0.1),
        origin="a test", rounds=9, disturbed=2, overheads=[(120.0, 0.6), (12.0, 0.5)],
    )  # fmt: skip


def test_the_page_says_which_targets_are_met_and_which_are_not() -> None:
    text = page([_row("good", 0.99, 0.84), _row("bad", 0.93, 1.2)], {"cpu": "a CPU"}, "apportion suite")
    assert "| mean efficiency of the third launch | 0.95 | 0.960 (" in text
    assert "| mean efficiency of the first launch | 0.85 | 0.670 | **no** |" in text
    assert "| mean efficiency of the launches from the third on | 0.95 | 0.970 (" in text
    assert "launched in turn in each round, 5 times in a row" in text
    assert "the mean of the third to the 5th launch" in text
    assert "Rounds in which other machines on the same hardware got more than 2 % of the processors" in text
    assert "do not count: 4 of 18." in text
    worst = "| worst over the best device alone, "
    assert f"{worst}at the third launch | 1.05 | 1.200 (1.080 to 1.320), `bad` | **no** |" in text
    assert f"{worst}from the third launch on | 1.05 | 1.100 (0.990 to 1.210), `bad` | **no** |" in text
    assert "| host overhead of launches of 100 ms and more | 0.02 | 0.50% (median of 2) | yes |" in text
    slower = "More than 5 % slower than the best device alone, "
    assert f"{slower}at the third launch: bad; by the whole of their intervals: bad." in text
    assert f"{slower}from the third launch on: bad; by the whole of their intervals: none." in text
    assert "Shares of first launches are off the best cut by 30.0" in text
    assert "those of the best constant, 0.2 for cpu, by 0.0" in text
    assert "first launches take 1.493 of the best cut's time (means over 2 kernels)" in text
    assert "first launches are predicted from a test" in text


def test_the_curves_are_one_drawing_with_a_panel_for_each_kernel() -> None:
    drawing = ElementTree.fromstring(curves([_row("good", 0.99, 0.84), _row("bad", 0.93, 1.2)]))
    lines = [element for element in drawing.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 2
    assert len(lines[0].attrib["points"].split()) == 4


def test_the_interval_of_a_mean_holds_it() -> None:
    mean, low, high = mean_with_interval([0.9, 1.0, 0.95, 0.97])
    assert mean == pytest.approx(0.955)
    assert 0.9 <= low <= mean <= high <= 1.0


def test_launches_are_compared_with_those_at_the_same_place_of_a_turn() -> None:
    turns = {0: [5.0, 3.0, 1.0, 2.0, 3.0], 2: [7.0]}
    assert _nth(turns, 0) == {0: 5.0, 2: 7.0}
    assert _nth(turns, 2) == {0: 1.0, 2: 7.0}
    assert _after(turns) == {0: 2.0, 2: 7.0}
    assert _ratio(_nth(turns, 0), {1: 9.0, 2: 3.5}).median == 2.0


def test_rounds_in_which_other_machines_got_the_processors_do_not_count_where_enough_are_left() -> None:
    turns = {number: [float(number)] for number in range(12)}
    few = {number: turns[number] for number in (3, 4)}
    disturbed = _Rounds({"cpu": turns, "gpu": few}, [0.0, 0.01, 0.02, 0.5, 0.3, *(0.0,) * 7])
    assert list(disturbed.counting()["cpu"]) == [0, 1, 2, *range(5, 12)]
    assert disturbed.counting()["gpu"] == few  # there is nothing better
    everywhere = _Rounds({"cpu": turns}, [0.01 * number for number in range(12)])
    assert list(everywhere.counting()["cpu"]) == list(range(10))
    quiet = _Rounds({"cpu": turns}, [0.0] * 12)
    assert quiet.counting() == {"cpu": turns}
