"""PoCL and Intel's CPU runtime share a kernel: two vendors, two compilers, no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.runtime.base import Limits, LocalMemory
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.opencl.platforms import intel_library
from apportion.runtime.split import Split
from apportion.testing.backend_checks import launches, run

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
def two_vendors() -> Iterator[OpenCLBackend]:
    with OpenCLBackend(DriverOptions(pocl_instances=1, threads=1), Limits(seconds=20)) as opened:
        yield opened


def test_both_runtimes_are_found_without_any_setting(two_vendors: OpenCLBackend) -> None:
    platforms = [info.platform for info in two_vendors.devices() if info.kind == "cpu"]
    assert "Portable Computing Language" in platforms
    assert "Intel(R) OpenCL" in platforms


def test_two_vendors_share_a_kernel_and_each_checks_the_other(two_vendors: OpenCLBackend) -> None:
    devices = [info.id for info in two_vendors.devices() if info.kind == "cpu"]
    x, y = np.random.default_rng(0).random(4096).astype(np.float32), np.zeros(64, np.float32)
    with Together(SOURCE, "sums", devices, backend=two_vendors, policy="even") as kernel:
        execution = kernel(x, y, LocalMemory(4 * 64), global_size=4096, local_size=64)
    assert execution.verified
    assert min(execution.split.values()) == 0.5
    np.testing.assert_allclose(y, np.exp(np.sin(x)).reshape(64, 64).sum(1), rtol=1e-4)


def test_every_kind_of_launch_comes_to_its_result(two_vendors: OpenCLBackend) -> None:
    (intel,) = (info.id for info in two_vendors.devices() if "Intel" in info.platform)
    for name, (call, out, expected) in launches().items():
        run(two_vendors, call, Split.alone(intel))
        assert np.array_equal(out, expected), name
