"""What every backend promises, as tests to inherit."""

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
from apportion.runtime.backend import Backend
from apportion.runtime.base import LocalMemory, Value, info_from
from apportion.runtime.plan import ArrayPlace, Build, LaunchOutcome, LocalPlace, Plan, ValuePlace
from apportion.runtime.split import Split

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


@dataclasses.dataclass(frozen=True, eq=False)
class KernelCall:
    """A kernel with its arguments, in the order of its parameters, and its range."""

    source: str
    kernel: str
    arguments: tuple[Value | LocalMemory, ...]
    span: NDRange


def run(backend: Backend, call: KernelCall, split: Split) -> LaunchOutcome:
    """Launch a call under a split; its writeable arrays hold the results afterwards.

    Nothing is known of what the kernel writes, so devices work on copies that are compared.
    """
    places: list[ArrayPlace | ValuePlace | LocalPlace] = []
    arrays = []
    for number, value in enumerate(call.arguments):
        name = f"argument {number}"
        if isinstance(value, LocalMemory):
            places.append(LocalPlace(name, value.nbytes))
        elif isinstance(value, np.ndarray) and value.ndim:
            region = backend.allocate(value.nbytes)
            shared = region.array(value.dtype, value.shape)
            shared[...] = value
            places.append(ArrayPlace(name, region.number, value.nbytes, value.dtype.str, "diff"))
            arrays.append((value, shared, region))
        else:
            data = value if isinstance(value, bytes) else np.asarray(value).tobytes()
            places.append(ValuePlace(name, data))
    dimension = call.span.dimensions - 1
    parts = tuple(split.parts(call.span.groups[dimension]))
    outcome = backend.launch(
        Plan(Build(call.source, call.kernel), call.span, dimension, tuple(places), parts=parts)
    )
    for value, shared, _ in arrays:
        if value.flags.writeable:
            value[...] = shared
    return outcome


def launches() -> dict[str, tuple[KernelCall, NDArray[Any], NDArray[Any]]]:
    """Name → a call, the array it writes, and what must be in there afterwards; made anew each time."""
    numbers = np.arange(64, dtype=np.int32)
    line = NDRange((64,), (16,))
    found: dict[str, tuple[KernelCall, NDArray[Any], NDArray[Any]]] = {}

    def add(
        name: str, kernel: str, arguments: tuple[Any, ...], span: NDRange, out: int, expected: Any
    ) -> None:
        launch = KernelCall(SOURCE, kernel, arguments, span)
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


class BackendChecks:
    """Inherit from this in the tests of a backend, and say how to open it:

    ```python
    class TestMyBackend(BackendChecks):
        def backend(self) -> Backend:
            return MyBackend()
    ```
    """

    def backend(self) -> Backend:
        """An open backend to be checked; each check opens its own and closes it."""
        raise TypeError(f"{type(self).__name__} must say how to open its backend")

    def test_it_describes_its_devices_each_under_an_id_of_its_own(self) -> None:
        with self.backend() as backend:
            found = backend.devices()
        assert found
        assert len({info.id for info in found}) == len(found)
        for info in found:
            assert info.name
            assert info.kind in ("cpu", "gpu", "accelerator")
            assert min(info.compute_units, info.memory_bytes, info.max_work_group_size) >= 1
            assert info_from(json.loads(json.dumps(dataclasses.asdict(info)))) == info

    def test_every_kind_of_launch_comes_to_its_result_on_every_device(self) -> None:
        with self.backend() as backend:
            for info in backend.devices():
                for name, (call, out, expected) in launches().items():
                    before = out.copy()
                    run(backend, call, Split.alone(info.id))
                    wanted = expected if backend.computes else before
                    assert np.array_equal(out, wanted), f"{name} on {info.id}"

    def test_devices_share_a_launch(self) -> None:
        call, out, expected = launches()["a plane"]
        with self.backend() as backend:
            names = [info.id for info in backend.devices()]
            outcome = run(backend, call, Split.even(names))
            assert not backend.computes or np.array_equal(out, expected)
        done = {each.device: each.groups for each in outcome.devices if each.groups}
        assert sum(done.values()) == call.span.groups[1]
        assert outcome.conflicts.get("argument 0", 0) == 0

    def test_an_outcome_is_as_long_as_its_parts(self) -> None:
        with self.backend() as backend:
            first = backend.devices()[0].id
            outcome = run(backend, launches()["a line"][0], Split.alone(first))
        (time,) = outcome.devices
        assert outcome.seconds > 0
        assert min(time.upload, time.kernel, time.download) >= 0
        # Clocks are read between the parts: what is counted twice is rounding.
        assert time.upload + time.kernel + time.download <= outcome.seconds * 1.001 + 1e-6

    def test_what_is_only_read_stays_as_it_is(self) -> None:
        call, _, _ = launches()["a line"]
        source = call.arguments[0]
        assert isinstance(source, np.ndarray)
        source.flags.writeable = False
        with self.backend() as backend:
            run(backend, call, Split.alone(backend.devices()[0].id))
        assert source.tolist() == list(range(64))

    def test_a_launch_can_be_repeated(self) -> None:
        call, out, expected = launches()["local memory"]
        with self.backend() as backend:
            for _ in range(3):
                out[...] = 0
                run(backend, call, Split.alone(backend.devices()[0].id))
                assert not backend.computes or np.array_equal(out, expected)

    def test_memory_is_zero_and_lives_as_long_as_an_array_over_it(self) -> None:
        with self.backend() as backend:
            array = backend.allocate(4096).array(np.int32, (32, 32))
            assert not array.any()
            array[...] = 7
            assert int(array.sum()) == 7 * 1024

    def test_a_build_tells_how_large_work_groups_may_be(self) -> None:
        with self.backend() as backend:
            names = [info.id for info in backend.devices()]
            largest = backend.build(Build(SOURCE, "add"), names)
        assert list(largest) == names
        assert min(largest.values()) >= 1

    def test_a_kernel_that_there_is_not_is_an_error_of_ours_and_the_next_launch_works(self) -> None:
        call = launches()["a line"][0]
        nameless = dataclasses.replace(call, kernel="no_such_kernel")
        with self.backend() as backend:
            split = Split.alone(backend.devices()[0].id)
            assert isinstance(_raised(functools.partial(run, backend, nameless, split)), ApportionError)
            run(backend, call, split)

    def test_a_source_that_does_not_compile_is_an_error_of_ours(self) -> None:
        call = KernelCall("kernel void f(global int *a) { a[0] = ; }", "f", (np.zeros(4, np.int32),), _FOUR)
        with self.backend() as backend:
            split = Split.alone(backend.devices()[0].id)
            assert isinstance(_raised(functools.partial(run, backend, call, split)), ApportionError)

    def test_closing_twice_does_nothing(self) -> None:
        backend = self.backend()
        backend.close()
        backend.close()


_FOUR = NDRange((4,), (4,))


def _raised(action: Callable[[], object]) -> Exception | None:
    """What the action raises: pytest is not asked, since the package can be used without it."""
    try:
        action()
    except Exception as error:
        return error
    return None
