"""A device that computes by itself is started before others are fed, and its times are its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.errors import DeadlineExceeded, LaunchFailed
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, DeviceTime, Plan, ValuePlace
from apportion.runtime.split import Part, Split

pytest.importorskip("pyopencl")

SOURCE = """
kernel void turns(global float *y, int n) {
    volatile float v = 1;
    for (int k = 0; n < 0 || k < n; k++) v = v * 0.5f + 0.5f;
    y[get_global_id(0)] = v + get_global_id(0);
}
"""
COUNT, GROUP = 1024, 16
GROUPS = COUNT // GROUP
LONG = 30_000
"Turns of a loop that make a launch take some tens of milliseconds."


@pytest.fixture
def doomed() -> Iterator[Worker]:
    """A worker that a test may ruin."""
    options = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with Worker(options, Limits(seconds=1.0)) as started:
        yield started


def _plan(region: int, turns: int, parts: dict[str, tuple[int, int]]) -> Plan:
    """Both devices write in place; which bytes, nobody knows: a device that copies cannot bring them home."""
    return Plan(
        Build(SOURCE, "turns"),
        NDRange((COUNT,), (GROUP,)),
        0,
        (
            ArrayPlace("y", region, 4 * COUNT, "<f4", "slice"),
            ValuePlace("n", np.int32(turns).tobytes()),
        ),
        tuple(Part(device, *part) for device, part in parts.items()),
    )


def _shared(backend: OpenCLBackend, shares: dict[str, float], turns: int) -> dict[str, DeviceTime]:
    """The times of a launch of which the drivers have seen the like."""
    pytest.importorskip("ziglang")
    with Together(SOURCE, "turns", list(shares), backend=backend, trust=True) as kernel:
        y = kernel.array(COUNT, np.float32)
        bound = kernel.bind(y, turns, global_size=COUNT, local_size=GROUP)
        plan = bound._launcher.plan(tuple(Split(shares).parts(GROUPS)))
        backend.launch(plan)
        y[:] = 0
        outcome = backend.launch(plan)
        assert y.tolist() == list(range(1, COUNT + 1))
        assert outcome.seconds >= max(time.seconds for time in outcome.devices)
        assert not any(time.cold for time in outcome.devices)
        return {time.device: time for time in outcome.devices}


@pytest.mark.parametrize("shares", [{"cpu": 0.1, "cpu3": 0.9}, {"cpu3": 0.9, "cpu": 0.1}], ids="+".join)
def test_what_computes_by_itself_is_started_before_another_is_fed(
    backend: OpenCLBackend, shares: dict[str, float]
) -> None:
    times = _shared(backend, shares, LONG)
    assert list(times) == list(shares)
    cpu, fed = times["cpu"], times["cpu3"]
    assert cpu.began + cpu.upload <= fed.began
    assert cpu.busy <= cpu.kernel <= cpu.seconds
    assert cpu.download == 0
    assert sum(time.groups for time in times.values()) == GROUPS


def test_a_device_is_done_when_its_own_clock_says_and_not_when_it_is_waited_for(
    backend: OpenCLBackend,
) -> None:
    # Other programs may hold the processors during a launch; a device that is waited for is late in all of them.
    for _ in range(25):
        times = _shared(backend, {"cpu2": 0.9, "cpu": 0.1}, LONG)
        cpu, whole = times["cpu"], times["cpu2"].seconds
        if cpu.busy <= cpu.kernel <= cpu.seconds < 0.6 * whole and cpu.began < 0.5 * whole:
            return
    raise AssertionError(f"the device with a tenth of the work was never done first: {times}")


def test_when_one_device_fails_the_others_are_waited_for(doomed: Worker) -> None:
    region, y = doomed.shared(np.zeros(COUNT, np.float32))
    doomed.run(_plan(region.number, 1, {"cpu": (0, GROUPS)}))  # from now on it is started first
    y[:] = 0
    with pytest.raises(LaunchFailed, match="not known which part of 'y' the device cpu2 wrote"):
        doomed.run(_plan(region.number, LONG, {"cpu": (0, GROUPS - 1), "cpu2": (GROUPS - 1, GROUPS)}))
    assert y[: COUNT - GROUP].tolist() == list(range(1, COUNT - GROUP + 1))


def test_what_is_started_first_is_stopped_at_its_deadline(doomed: Worker) -> None:
    region, y = doomed.shared(np.zeros(COUNT, np.float32))
    doomed.run(_plan(region.number, 1, {"cpu": (0, GROUPS)}))
    with pytest.raises(DeadlineExceeded, match=r"stopped after 1 s of running 'turns' on cpu, cpu2"):
        doomed.run(_plan(region.number, -1, {"cpu": (0, 1), "cpu2": (1, 2)}))
    doomed.run(_plan(region.number, 1, {"cpu": (0, GROUPS)}))
    assert y.tolist() == list(range(1, COUNT + 1))
