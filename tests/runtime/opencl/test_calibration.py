"""Calibrating: what one more operation takes, whatever a launch takes anyway and whoever is in the way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace

import pytest

pytest.importorskip("pyopencl")

from apportion.runtime.base import Calibration, info_from, middle_of
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl import backend as backend_module
from apportion.runtime.opencl import calibration as calibrating
from apportion.runtime.opencl.backend import calibrated, kept_calibration
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


def test_a_calibration_without_time_measures_the_rates_and_names_what_it_left_out() -> None:
    with Worker(DriverOptions(pocl_instances=1, threads=1, vendors=False)) as worker:
        hurried = worker.calibrate("cpu", 1e-6)
        whole = worker.calibrate("cpu")
    assert (hurried.worth, hurried.latency, whole.left_out) == ({}, {}, ())
    assert min(hurried.to_device, hurried.memory, hurried.arithmetic, hurried.launch_seconds) > 0
    everything = [f"worth {name}" for name in whole.worth] + [f"latency {name}" for name in whole.latency]
    assert sorted(hurried.left_out) == sorted(everything)
    assert middle_of([hurried, whole]).left_out == ()
    assert set(middle_of([hurried, whole]).worth) == set(whole.worth)


@pytest.mark.parametrize(("takes", "times"), [(0.5, 3), (5.0, 1), (2.5, 2)])
def test_a_device_is_measured_as_often_as_there_is_time_for(
    takes: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    asked: list[float] = []

    def measure(device: str, seconds: float) -> Calibration:
        asked.append(seconds)
        now[0] += takes
        return Calibration(1.0, 1.0, 1.0, 1.0, 1.0)

    monkeypatch.setattr(backend_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    info = info_from({**_DESCRIPTION, "id": f"cpu{takes}"})
    assert calibrated(info, measure, 4.0).calibration == Calibration(1.0, 1.0, 1.0, 1.0, 1.0)
    assert asked == [4.0 - takes * number for number in range(times)]
    assert kept_calibration(info).calibration == Calibration(1.0, 1.0, 1.0, 1.0, 1.0)


_DESCRIPTION = {
    "name": "a device", "kind": "cpu", "vendor": "v", "platform": "p", "driver": "d", "version": "1",
    "compute_units": 1, "memory_bytes": 1, "local_bytes": 1, "max_work_group_size": 1,
}  # fmt: skip
