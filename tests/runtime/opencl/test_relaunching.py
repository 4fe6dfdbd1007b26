"""A plan that is launched again goes through a ring in shared memory; what can go wrong with it still is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from apportion.errors import DeadlineExceeded, OutOfBoundsWrite, WorkerCrashed
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.relaunching import _numbers, _outcome
from apportion.runtime.opencl.ring import _LOOKS_ANEW, _SPIN_SECONDS, _Patience
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, Chunks, DeviceTime, LaunchOutcome, Plan
from apportion.runtime.split import Part

pytest.importorskip("pyopencl")

SOURCE = """
kernel void act(global const int *what, global int *out) {
    int i = get_global_id(0);
    if (what[0] == 1) out[i + 3] = 7;
    if (what[0] == 2) { volatile int on = 1; while (on) {} }
    if (what[0] == 3) *(volatile global int *)(size_t)16 = 1;
    out[i] += 1;
}
kernel void same_place(global int *out) { out[get_global_id(0) % 4] = get_global_id(0); }
"""
COUNT, GROUP = 256, 16
Doomed = Callable[..., Worker]


@pytest.fixture
def doomed() -> Doomed:
    """A worker that a test may ruin."""
    started: list[Worker] = []

    def start(**limits: float) -> Worker:
        started.append(Worker(DriverOptions(pocl_instances=2, threads=1, vendors=False), Limits(**limits)))
        return started[-1]

    yield start  # type: ignore[misc]
    for worker in started:
        worker.close()


def _acting(worker: Worker, *devices: str) -> tuple[Plan, np.ndarray, np.ndarray, list[object]]:
    """A plan of the kernel `act`, what it is told to do, its results, and what keeps the memory."""
    first, what = worker.shared(np.zeros(1, np.int32))
    second, out = worker.shared(np.zeros(COUNT, np.int32))
    cuts = np.linspace(0, COUNT // GROUP, len(devices) + 1).astype(int).tolist()
    plan = Plan(
        Build(SOURCE, "act"), NDRange((COUNT,), (GROUP,)), 0,
        (
            ArrayPlace("what", first.number, first.nbytes, "<i4"),
            ArrayPlace("out", second.number, second.nbytes, "<i4", "diff"),
        ),
        tuple(Part(device, *cuts[i : i + 2]) for i, device in enumerate(devices)),
    )  # fmt: skip
    return plan, what, out, [first, second]


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cpu2"], ["cpu", "cpu2", "cpu3"]], ids="+".join)
def test_a_launch_that_comes_again_does_and_tells_what_the_first_one_did(
    worker: Worker, devices: list[str]
) -> None:
    plan, _, out, _kept = _acting(worker, *devices)
    first, *others = [worker.run(plan) for _ in range(4)]
    assert out.tolist() == [4] * COUNT
    for again in others:
        assert [(time.device, time.ranges) for time in again.devices] == [
            (time.device, time.ranges) for time in first.devices
        ]
        assert again.conflicts == first.conflicts
        assert not any(time.cold for time in again.devices)
        assert 0 < again.merge_seconds < again.seconds
        assert all(0 < time.busy <= time.seconds < again.seconds for time in again.devices)


def test_conflicts_are_counted_again(worker: Worker) -> None:
    region, _ = worker.shared(np.full(4, -1, np.int32))
    place = ArrayPlace("out", region.number, region.nbytes, "<i4", "diff")
    parts = (Part("cpu", 0, 8), Part("cpu2", 8, 16))
    plan = Plan(
        Build(SOURCE, "same_place"), NDRange((COUNT,), (GROUP,)), 0, (place,), parts, checked=True, undo=True
    )
    assert [worker.run(plan).conflicts for _ in range(3)] == [{"out": 4}] * 3


def test_chunks_that_come_again_are_told_in_words(worker: Worker) -> None:
    plan, _, out, _kept = _acting(worker, "cpu", "cpu2")
    chunked = replace(plan, parts=(), chunks=Chunks({"cpu": 0.5, "cpu2": 0.5}))
    outcomes = [worker.run(chunked) for _ in range(3)]
    assert out.tolist() == [3] * COUNT
    assert all(sum(time.groups for time in each.devices) == COUNT // GROUP for each in outcomes)


def test_a_write_past_an_array_is_found_when_only_a_later_launch_does_it(worker: Worker) -> None:
    plan, what, out, _kept = _acting(worker, "cpu")
    for _ in range(2):
        worker.run(plan)
    what[0] = 1
    with pytest.raises(OutOfBoundsWrite, match="wrote out of bounds"):
        worker.run(plan)
    what[0], out[:] = 0, 0
    worker.run(plan)
    assert out.tolist() == [1] * COUNT


@pytest.mark.parametrize(("what", "error"), [(2, DeadlineExceeded), (3, WorkerCrashed)])
def test_a_later_launch_that_hangs_or_crashes_costs_itself_and_no_more(
    doomed: Doomed, what: int, error: type[Exception]
) -> None:
    worker = doomed(seconds=1.5)
    plan, told, out, _kept = _acting(worker, "cpu")
    for _ in range(2):
        worker.run(plan)
    told[0] = what
    with pytest.raises(error):
        worker.run(plan)
    told[0], out[:] = 0, 0
    for _ in range(3):  # a new process knows nothing of the plan, and then keeps it again
        worker.run(plan)
    assert out.tolist() == [3] * COUNT
    assert worker.restarts == 1


def test_numbers_survive_and_what_is_no_number_is_refused() -> None:
    time = DeviceTime("cpu", ((0, 4),), 1.0, 2.0, 3.0, 7.0, 0.5, 1.5, True)
    outcome = LaunchOutcome((time, replace(time, device="gpu", cold=False)), 9.0, 1.0, {"y": 2}, {"x": 3})
    numbers = _numbers(outcome)
    assert _outcome(outcome, tuple(numbers)) == outcome
    numbers[0] = math.nan
    with pytest.raises(WorkerCrashed, match="a time that is no number"):
        _outcome(outcome, tuple(numbers))


def test_who_looks_for_news_in_vain_sleeps_at_once_and_tries_again_later() -> None:
    patience = _Patience()
    looked = []
    for wait in range(4 * _LOOKS_ANEW):
        looked.append(patience.seconds())
        patience.learn(looked[-1], came=wait >= 2 * _LOOKS_ANEW)
    assert [round(each / _SPIN_SECONDS) for each in looked[: 2 * _LOOKS_ANEW]].count(1) == 2
    assert looked[3 * _LOOKS_ANEW :] == [_SPIN_SECONDS] * _LOOKS_ANEW
