"""After a launch that a driver failed, the worker is replaced: a GPU's context may be of no more use."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import LaunchFailed
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.split import Split
from apportion.testing.backend_checks import KernelCall, run

pytest.importorskip("pyopencl")
SOURCE = "kernel void fill(global int *y) { y[get_global_id(0)] = 1; }"


def test_a_failed_launch_replaces_the_worker_and_the_next_one_works() -> None:
    values, alone = np.zeros(64, np.int32), Split.alone("cpu")
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    with OpenCLBackend(drivers, Limits(seconds=10)) as backend:
        with pytest.raises(LaunchFailed):
            run(backend, KernelCall(SOURCE, "absent", (values,), NDRange((64,), (64,))), alone)
        assert backend.worker.restarts == 1
        run(backend, KernelCall(SOURCE, "fill", (values,), NDRange((64,), (64,))), alone)
        assert backend.worker.restarts == 1
    assert values.tolist() == [1] * 64
