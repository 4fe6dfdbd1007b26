"""What every device promises, as tests to inherit."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import ApportionError
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Device, Launch, LocalMemory, info_from

SOURCE = """
typedef struct { int shift; float scale; } Change;

kernel void add(global const int *a, global int *b, int n) {
    int i = get_global_id(0);
    if (i < n) b[i] = a[i] + n;
}
kernel void plane(global int *out, int width) {
    out[get_global_id(1) * width + get_global_id(0)] = get_global_id(1) * 100 + get_global_id(0);
}
kernel void space(global int *out) {
    size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    out[(z * get_global_size(1) + y) * get_global_size(0) + x] = z * 100 + y * 10 + x;
}
kernel void reversed(global const int *a, global int *b, local int *kept) {
    int here = get_local_id(0), size = get_local_size(0);
    kept[here] = a[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    b[get_global_id(0)] = kept[size - 1 - here];
}
kernel void changed(global float *x, Change change) {
    int i = get_global_id(0);
    x[i] = (x[i] + change.shift) * change.scale;
}
kernel void shifted(global int *out) { out[get_global_id(0)] = get_global_id(0); }
"""
CHANGE = np.dtype([("shift", np.int32), ("scale", np.float32)])


def launches() -> dict[str, tuple[Launch, NDArray[Any], NDArray[Any]]]:
    """Name → a launch, the array it writes, and what must be in there afterwards; made anew each time."""
    numbers = np.arange(64, dtype=np.int32)
    line = NDRange((64,), (16,))
    found: dict[str, tuple[Launch, NDArray[Any], NDArray[Any]]] = {}

    def add(
        name: str, kernel: str, arguments: tuple[Any, ...], span: NDRange, out: int, expected: Any
    ) -> None:
        launch = Launch(SOURCE, kernel, arguments, span)
        found[name] = launch, arguments[out], np.asarray(expected, arguments[out].dtype)

    add("a line", "add", (numbers, np.zeros(64, np.int32), np.int32(60)), line, 1,
        [i + 60 if i < 60 else 0 for i in range(64)])  # fmt: skip
    add("a plane", "plane", (np.zeros((8, 16), np.int32), np.int32(16)), NDRange((16, 8), (4, 2)), 0,
        [[100 * y + x for x in range(16)] for y in range(8)])  # fmt: skip
    add("space", "space", (np.zeros((2, 4, 8), np.int32),), NDRange((8, 4, 2), (4, 2, 1)), 0,
        [[[100 * z + 10 * y + x for x in range(8)] for y in range(4)] for z in range(2)])  # fmt: skip
    add("local memory", "reversed", (numbers, np.zeros(64, np.int32), LocalMemory(64)), line, 1,
        numbers.reshape(4, 16)[:, ::-1].reshape(-1))  # fmt: skip
    add("a structure", "changed", (np.ones(64, np.float32), np.array((3, 0.5), CHANGE).tobytes()), line, 0,
        np.full(64, 2.0))  # fmt: skip
    add("an offset", "shifted", (np.zeros(64, np.int32),), NDRange((32,), (16,), (32,)), 0,
        [0] * 32 + list(range(32, 64)))  # fmt: skip
    return found


class DeviceChecks:
    """Inherit from this in the tests of a device, and say how to make one:

    ```python
    class TestMyDevice(DeviceChecks):
        def device(self) -> Device:
            return MyDevice()
    ```
    """

    computes = True
    "Whether arrays hold results after a launch; a recording has none."

    def device(self) -> Device:
        """A device to be checked; each check makes its own and closes it."""
        raise TypeError(f"{type(self).__name__} must say how to make its device")

    def test_it_describes_itself(self) -> None:
        with self.device() as device:
            info = device.info
        assert info.id
        assert info.name
        assert info.kind in ("cpu", "gpu", "accelerator")
        assert min(info.compute_units, info.memory_bytes, info.max_work_group_size) >= 1
        assert info_from(json.loads(json.dumps(dataclasses.asdict(info)))) == info

    def test_every_kind_of_launch_comes_to_its_result(self) -> None:
        with self.device() as device:
            for name, (launch, out, expected) in launches().items():
                before = out.copy()
                device.run(launch)
                assert np.array_equal(out, expected if self.computes else before), name

    def test_a_timing_is_as_long_as_its_parts(self) -> None:
        with self.device() as device:
            timing = device.run(launches()["a line"][0])
        assert timing.seconds > 0
        assert min(timing.upload, timing.kernel, timing.download) >= 0
        # Clocks are read between the parts: what is counted twice is rounding.
        assert timing.upload + timing.kernel + timing.download <= timing.seconds * 1.001 + 1e-6

    def test_what_is_only_read_stays_as_it_is(self) -> None:
        launch, _, _ = launches()["a line"]
        source = launch.arguments[0]
        assert isinstance(source, np.ndarray)
        source.flags.writeable = False
        with self.device() as device:
            device.run(launch)
        assert source.tolist() == list(range(64))

    def test_a_launch_can_be_repeated(self) -> None:
        launch, out, expected = launches()["local memory"]
        with self.device() as device:
            for _ in range(3):
                out[...] = 0
                device.run(launch)
                assert not self.computes or np.array_equal(out, expected)

    def test_a_source_that_does_not_compile_is_an_error_of_ours_and_the_next_launch_works(self) -> None:
        broken = Launch("kernel void f(global int *a) { a[0] = ; }", "f", (np.zeros(4, np.int32),), _FOUR)
        nameless = dataclasses.replace(launches()["a line"][0], kernel="no_such_kernel")
        with self.device() as device:
            for launch in (broken, nameless):
                assert isinstance(_raised(functools.partial(device.run, launch)), ApportionError)
            device.run(launches()["a line"][0])

    def test_closing_twice_does_nothing(self) -> None:
        device = self.device()
        device.close()
        device.close()


_FOUR = NDRange((4,), (4,))


def _raised(action: Callable[[], object]) -> Exception | None:
    """What the action raises: pytest is not asked, since the package can be used without it."""
    try:
        action()
    except Exception as error:
        return error
    return None
