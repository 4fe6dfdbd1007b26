"""Calibrating: what one more operation takes, whatever a launch takes anyway and whoever is in the way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

pytest.importorskip("pyopencl")

from apportion.runtime.base import Calibration, middle_of
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl import calibration as calibrating
from apportion.runtime.opencl.worker import Worker


@pytest.mark.parametrize("each", [1e-6, 1e-3])
def test_what_any_launch_takes_is_not_in_what_one_more_takes(
    each: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    called = count()

    def seconds(action: Callable[[], object]) -> float:
        action()
        hiccup = 0.05 if next(called) % 3 == 0 else 0.0
        return 2e-4 + each * done[-1] + hiccup

    monkeypatch.setattr(calibrating, "_seconds", seconds)
    assert calibrating._seconds_each(done.append) == pytest.approx(each)


def test_functions_are_worth_more_than_integers_on_a_real_device() -> None:
    with Worker(DriverOptions(pocl_instances=1, threads=1, vendors=False)) as worker:
        worth = middle_of([worker.calibrate("cpu") for _ in range(3)]).worth
    assert set(worth) >= {"divisions", "roots", "powers", "angles", "global atomics", "barriers", "groups"}
    assert min(worth["angles"], worth["powers"]) > 5 * worth["integer operations"]
    assert worth["groups"] > worth["barriers"]


def test_a_work_item_alone_takes_longer_for_functions_and_groups_hand_over_in_some_time() -> None:
    with Worker(DriverOptions(pocl_instances=1, threads=1, vendors=False)) as worker:
        found = middle_of([worker.calibrate("cpu") for _ in range(3)])
    assert found.latency["angles"] > 5 * found.latency["float operations"] > 0
    assert 1e-9 < found.latency["waits"] < 1e-3
    speeds = found.speeds()
    assert speeds["latency waits"] == found.latency["waits"]
    assert speeds["worth angles"] == found.worth["angles"]


def test_the_middle_of_calibrations_goes_by_what_operations_take() -> None:
    def one(arithmetic: float, seconds: float, memory: float) -> Calibration:
        return Calibration(
            1.0, 2.0, memory, arithmetic, 3.0, {"angles": seconds * arithmetic}, {"waits": seconds}
        )

    # The second was disturbed while it multiplied, the third while it read memory.
    found = middle_of([one(100.0, 0.5, 10.0), one(20.0, 0.5, 11.0), one(100.0, 0.7, 1.0)])
    assert (found.arithmetic, found.memory, found.launch_seconds) == (100.0, 10.0, 3.0)
    assert found.worth == {"angles": pytest.approx(50.0)}
    assert found.latency == {"waits": 0.5}
