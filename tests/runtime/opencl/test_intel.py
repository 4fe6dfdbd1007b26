"""PoCL and Intel's CPU runtime share a kernel: two vendors, two compilers, no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.runtime.base import Device, Limits, LocalMemory
from apportion.runtime.opencl.devices import OpenCLDevice
from apportion.runtime.opencl.platforms import DriverOptions, intel_library
from apportion.runtime.opencl.worker import Worker
from apportion.testing.device_checks import DeviceChecks

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
if intel_library() is None:
    pytest.skip("Intel's CPU runtime is not here: pip install 'apportion[intel]'", allow_module_level=True)

SOURCE = """
kernel void sums(global const float *x, global float *y, local float *kept) {
    int here = get_local_id(0);
    kept[here] = exp(sin(x[get_global_id(0)]));
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = get_local_size(0) / 2; step; step /= 2) {
        if (here < step) kept[here] += kept[here + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (here == 0) y[get_group_id(0)] = kept[0];
}
"""


@pytest.fixture(scope="module")
def two_vendors() -> Iterator[Worker]:
    with Worker(DriverOptions(pocl_instances=1, threads=1), Limits(seconds=20)) as worker:
        yield worker


def test_both_runtimes_are_found_without_any_setting(two_vendors: Worker) -> None:
    platforms = [info.platform for info in two_vendors.devices() if info.kind == "cpu"]
    assert "Portable Computing Language" in platforms
    assert "Intel(R) OpenCL" in platforms


def test_two_vendors_share_a_kernel_and_each_checks_the_other(two_vendors: Worker) -> None:
    devices = [info.id for info in two_vendors.devices() if info.kind == "cpu"]
    x, y = np.random.default_rng(0).random(4096).astype(np.float32), np.zeros(64, np.float32)
    with Together(SOURCE, "sums", devices, worker=two_vendors, policy="even") as kernel:
        execution = kernel(x, y, LocalMemory(4 * 64), global_size=4096, local_size=64)
    assert execution.verified
    assert min(execution.split.values()) == 0.5
    np.testing.assert_allclose(y, np.exp(np.sin(x)).reshape(64, 64).sum(1), rtol=1e-4)


class TestIntel(DeviceChecks):
    @pytest.fixture(autouse=True)
    def _worker(self, two_vendors: Worker) -> None:
        self.worker = two_vendors

    def device(self) -> Device:
        (intel,) = (info.id for info in self.worker.devices() if "Intel" in info.platform)
        return OpenCLDevice(intel, self.worker)
