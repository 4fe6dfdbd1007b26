"""Arrays of sessions: whose memory they have, and when it is another's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from apportion.coexecution.session import Session, SessionSettings
from apportion.errors import InvalidSetting
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.opencl.streams import WorkerStream, numbers_for

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
pytestmark = pytest.mark.xdist_group("opencl")

SOURCE = "kernel void scale(global int *a, int factor) { a[get_global_id(0)] *= factor; }"
ADD = """
kernel void add(global const int *a, global const int *b, global int *out) {
    int i = get_global_id(0);
    out[i] = a[i] + b[i];
}
"""
N = 256


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenCLBackend]:
    """A device that works in the host's memory, and one that copies."""
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(drivers, Limits(seconds=20)) as backend:
        yield backend


@pytest.mark.parametrize("device", ["cpu", "cpu2", None])
def test_arrays_that_are_made_anew_in_a_loop_get_the_memory_of_those_that_are_gone(
    opened: OpenCLBackend, device: str | None
) -> None:
    with Session(backend=opened) as session:
        add, out = session.kernel(ADD), session.zeros(N, np.int32)
        for number in range(300):
            values = session.array(np.full(N, number, np.int32))
            zeros = session.zeros(N, np.int32)
            add(values, zeros, out, global_size=N, local_size=64, device=device)
            add(out, values, zeros, global_size=N, local_size=64, device=device)
            if number % 70 == 0:
                assert zeros.numpy().tolist() == [2 * number] * N
        assert out.numpy().tolist() == [299] * N
        del values, zeros
        assert len(session._arrays) < 50
        assert len(session._bound_launches) < 150
        session.wait()
        assert session.zeros(N, np.int32).numpy().tolist() == [0] * N


def test_arrays_of_ever_other_sizes_are_let_go_of(opened: OpenCLBackend) -> None:
    with Session(backend=opened, settings=SessionSettings(idle_arrays=4)) as session:
        scale = session.kernel(SOURCE)
        for size in range(64, 164):
            values = session.array(np.ones(size, np.int32))
            scale(values, size, global_size=size, local_size=1, device="cpu2")
            assert values[-1] == size
        assert len(session._arrays) <= 6
        assert session._taken[1] <= 6 * 4 * 164
        assert isinstance(session._stream, WorkerStream)
        assert len(session._stream._on_host) < 10  # numbers of launches that come no more are given to others


def test_memory_that_somebody_looks_at_is_no_other_arrays(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        scale, seen = session.kernel(SOURCE), []
        for number in range(40):
            values = session.array(np.full(N, number, np.int32))
            scale(values, 2, global_size=N, device="cpu2")
            seen.append(values.view()[5:7] if number % 2 else np.from_dlpack(values)[:2])
        session.wait()
        del values
        session.zeros(N, np.int32)
        assert [each.tolist() for each in seen] == [[2 * number] * 2 for number in range(40)]
        seen.clear()
        session.zeros(N, np.int32)
        assert len(session._idle) > 30


def test_what_a_bound_launch_needs_stays(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        bound = session.kernel(SOURCE).bind(session.array(np.ones(N, np.int32), name="a"), 2, global_size=N)
        for _ in range(3):
            session.zeros(N, np.int32)
            bound()
        (array, _) = bound.arguments
        assert array.name == "a"
        assert array.numpy().tolist() == [8] * N


def test_an_array_that_was_forgotten_can_be_used_again(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a, scale = session.array(np.ones(N, np.int32)), session.kernel(SOURCE)
        scale(a, 2, global_size=N, device="cpu2")
        session.forget(a)
        assert session._taken[1] == 0
        assert session.locations_of(a) == ["host"]
        scale(a, 2, global_size=N, device="cpu2")
        assert a.numpy().tolist() == [4] * N


@pytest.mark.parametrize("shape", [-4, (2, -1), 2.5, "ab", (1, "a")])
def test_what_is_no_shape_is_refused(opened: OpenCLBackend, shape: Any) -> None:
    with Session(backend=opened) as session, pytest.raises(InvalidSetting, match="The shape of an array"):
        session.zeros(shape, np.int32)


@pytest.mark.parametrize("values", ["text", np.array(["2026-01-01"], "datetime64[D]"), [None]])
def test_what_no_kernel_takes_is_refused(opened: OpenCLBackend, values: Any) -> None:
    with Session(backend=opened) as session, pytest.raises(InvalidSetting, match="cannot go to a device"):
        session.array(values)


def test_jax_shares_an_arrays_memory(opened: OpenCLBackend) -> None:
    jax = pytest.importorskip("jax")
    with Session(backend=opened) as session:
        a = session.array(np.arange(N, dtype=np.int32))
        session.kernel(SOURCE)(a, 3, global_size=N, device="cpu2")
        shared = jax.dlpack.from_dlpack(a)
        assert shared.unsafe_buffer_pointer() == a.home.ctypes.data
        assert shared[:3].tolist() == [0, 3, 6]


def test_numbers_of_launches_that_come_no_more_are_given_first() -> None:
    assert numbers_for(3, 10, [4, 7]) == [4, 7, 10]
    assert numbers_for(1, 10, [4, 7]) == [4]
    with pytest.raises(InvalidSetting, match="prepares 4096 different launches at most"):
        numbers_for(2, 4096, [3])
