"""After a launch that a driver failed, the worker is replaced: a GPU's context may be of no more use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from apportion.errors import LaunchFailed
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Launch, Limits
from apportion.runtime.opencl.devices import OpenCLDevice
from apportion.runtime.opencl.platforms import DriverOptions
from apportion.runtime.opencl.worker import Worker

pytest.importorskip("pyopencl")
SOURCE = "kernel void fill(global int *y) { y[get_global_id(0)] = 1; }"


@pytest.fixture
def worker() -> Iterator[Worker]:
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    with Worker(drivers, Limits(seconds=10)) as worker:
        yield worker


def test_a_failed_launch_replaces_the_worker_and_the_next_one_works(worker: Worker) -> None:
    device = OpenCLDevice("cpu", worker)
    values = np.zeros(64, np.int32)
    with pytest.raises(LaunchFailed):
        device.run(Launch(SOURCE, "absent", (values,), NDRange((64,), (64,))))
    assert worker.restarts == 1
    device.run(Launch(SOURCE, "fill", (values,), NDRange((64,), (64,))))
    assert values.tolist() == [1] * 64
    assert worker.restarts == 1
