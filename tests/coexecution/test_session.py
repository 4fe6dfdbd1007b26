"""Sessions: whatever is launched and read in whatever order gives what NumPy gives; nothing is lost unsaid."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast, LaunchQuery
from apportion.coexecution.objective import PowerModel, objective_of
from apportion.coexecution.session import Session, SessionKernel, SessionSettings
from apportion.coexecution.session_array import SessionArray
from apportion.errors import CompileError, DataLost, InvalidSetting, JobError, UnknownName
from apportion.program.buildfile import BuildOptions
from apportion.program.source import Source
from apportion.runtime.base import DeviceInfo, Limits, LocalMemory
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.opencl.visiting_worker import VisitingWorker

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
pytestmark = pytest.mark.xdist_group("opencl")

SOURCE = """
kernel void add(global const int *a, global const int *b, global int *out) {
    int i = get_global_id(0);
    out[i] = a[i] + b[i];
}
kernel void scale(global int *a, int factor) { a[get_global_id(0)] *= factor; }
kernel void shifted(global const int *a, global int *out, int by) {
    int i = get_global_id(0), n = get_global_size(0);
    out[i] = a[(i + by) % n];
}
kernel void begin(global const int *a, global int *out) {
    int i = get_global_id(0);
    if (i < get_global_size(0) / 2) out[i] = a[i] + 1;
}
kernel void front(global const int *a, global int *out) { out[get_global_id(0)] = a[get_global_id(0)] * 3; }
kernel void sums(global const int *a, global int *out, local int *kept) {
    int here = get_local_id(0);
    kept[here] = a[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (here == 0) { int sum = 0; for (int k = 0; k < get_local_size(0); k++) sum += kept[k]; out[get_group_id(0)] = sum; }
}
kernel void spin(global int *a, int turns) {
    for (int k = 0; k < turns; k++) a[get_global_id(0)] = a[get_global_id(0)] * 1664525 + 1013904223;
}
"""
N = 256
DEVICES = ("cpu", "cpu2", None)


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenCLBackend]:
    """A device that works in the host's memory, and one that copies."""
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(drivers, Limits(seconds=20)) as backend:
        yield backend


def _numpy(arrays: list[np.ndarray], step: tuple[Any, ...]) -> None:
    """What a step does to the arrays, by NumPy."""
    match step:
        case ("add", a, b, out, _):
            arrays[out] = arrays[a] + arrays[b]
        case ("scale", a, factor, _):
            arrays[a] = arrays[a] * np.int32(factor)
        case ("shifted", a, out, by, _):
            arrays[out] = np.roll(arrays[a], -by)
        case ("begin", a, out, _):
            arrays[out] = np.concatenate([arrays[a][: N // 2] + 1, arrays[out][N // 2 :]])
        case ("front", a, out, count, _):
            arrays[out] = np.concatenate([arrays[a][:count] * 3, arrays[out][count:]])
        case ("write", a, place, value):
            arrays[a][place] = value
        case ("new", a, value):
            arrays[a] = np.full(N, value, np.int32)


_array = st.integers(0, 3)
_device = st.sampled_from(DEVICES)
_pair = st.tuples(_array, _array).filter(lambda pair: pair[0] != pair[1])
STEPS = st.one_of(
    st.tuples(st.just("add"), _array, _array, _array, _device).filter(lambda s: s[3] not in s[1:3]),
    st.tuples(st.just("scale"), _array, st.integers(-3, 3), _device),
    st.tuples(_pair, st.integers(0, N - 1), _device).map(lambda s: ("shifted", *s[0], *s[1:])),
    st.tuples(_pair, _device).map(lambda s: ("begin", *s[0], s[1])),
    st.tuples(_pair, st.sampled_from([64, 128, 256]), _device).map(lambda s: ("front", *s[0], *s[1:])),
    st.tuples(st.just("read"), _array),
    st.tuples(st.just("write"), _array, st.integers(0, N - 1), st.integers(-9, 9)),
    st.tuples(st.just("new"), _array, st.integers(-9, 9)),
    st.just(("wait",)),
)


def _play(session: Session, steps: list[tuple[Any, ...]], lookahead: bool = True) -> None:
    expected = [np.arange(N, dtype=np.int32) * (k + 1) for k in range(3)] + [np.zeros(N, np.int32)]
    arrays = [session.array(values) for values in expected[:3]] + [session.zeros(N, np.int32)]
    kernels = {name: session.kernel(SOURCE, name) for name in ("add", "scale", "shifted", "begin", "front")}
    line: dict[str, Any] = {"global_size": N, "local_size": 64}
    for step in steps:
        match step:
            case ("add", a, b, out, device):
                kernels["add"](arrays[a], arrays[b], arrays[out], **line, device=device)
            case ("scale", a, factor, device):
                kernels["scale"](arrays[a], factor, **line, device=device)
            case ("shifted", a, out, by, device):
                kernels["shifted"](arrays[a], arrays[out], by, **line, device=device)
            case ("begin", a, out, device):
                kernels["begin"](arrays[a], arrays[out], **line, device=device)
            case ("front", a, out, count, device):
                kernels["front"](arrays[a], arrays[out], global_size=count, local_size=64, device=device)
            case ("read", a):
                assert arrays[a].numpy().tolist() == expected[a].tolist(), steps
            case ("write", a, place, value):
                arrays[a][place] = value
            case ("new", a, 0):
                arrays[a] = session.zeros(N, np.int32)
            case ("new", a, value):  # it may get the memory of the one before
                arrays[a] = session.array(np.full(N, value, np.int32))
            case _:
                session.wait()
        _numpy(expected, step)
    for number, array in enumerate(arrays):
        assert array.numpy().tolist() == expected[number].tolist(), (number, steps)


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=24))
def test_any_sequence_of_launches_reads_and_writes_gives_what_numpy_gives(
    opened: OpenCLBackend, steps: list[tuple[Any, ...]]
) -> None:
    with Session(backend=opened) as session:
        _play(session, steps)


@settings(max_examples=25)
@given(steps=st.lists(STEPS, max_size=24))
def test_out_of_device_memory_means_eviction_and_the_same_results(
    opened: OpenCLBackend, steps: list[tuple[Any, ...]]
) -> None:
    three = SessionSettings(memory_bytes={"cpu2": 3 * 4 * N + 100})
    with Session(backend=opened, settings=three) as session:
        _play(session, steps)
        assert max(session._taken) <= 3 * 4 * N + 100


def test_something_new_before_what_repeats_itself_is_placed_too(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        _play(session, [("begin", 0, 1, None), ("scale", 2, 3, None), ("scale", 2, 3, None), ("read", 2)])


def test_a_launch_that_a_device_has_no_room_for_goes_elsewhere_or_says_so(opened: OpenCLBackend) -> None:
    small = SessionSettings(memory_bytes={"cpu2": 4 * N})
    with Session(backend=opened, settings=small) as session:
        a, b = session.array(np.ones(N, np.int32)), session.zeros(N, np.int32)
        add = session.kernel(SOURCE, "front")
        add(a, b, global_size=N, local_size=64)
        assert b.numpy().tolist() == [3] * N
        assert {one.device for one in session.explain()} == {"cpu"}
        with pytest.raises(InvalidSetting, match="cpu2 has room for 1024 bytes, and one launch needs 2048"):
            add(a, b, global_size=N, local_size=64, device="cpu2")
    with Session(["cpu2"], backend=opened, settings=small) as session:
        a, b = session.array(np.ones(N, np.int32)), session.zeros(N, np.int32)
        with pytest.raises(InvalidSetting, match=r"takes 2048 bytes .* more than cpu2 can hold"):
            session.kernel(SOURCE, "front")(a, b, global_size=N, local_size=64)


def test_odd_arrays_give_the_right_result(opened: OpenCLBackend) -> None:
    values = np.arange(2 * N, dtype=np.int32)
    with Session(backend=opened) as session:
        backwards = session.array(values[::-2])
        frozen = values[:N].copy()
        frozen.flags.writeable = False
        fixed, out = session.array(frozen), session.zeros(N, np.int32)
        session.kernel(SOURCE, "add")(backwards, fixed, out, global_size=N, local_size=64, device="cpu2")
        assert out.numpy().tolist() == (values[::-2] + frozen).tolist()
        # One array as two arguments, one of which is written: OpenCL allows it, and so does a session.
        session.kernel(SOURCE, "add")(fixed, out, out, global_size=N, local_size=64, device="cpu2")
        assert out.numpy().tolist() == (values[::-2] + 2 * frozen).tolist()
        session.kernel(SOURCE, "scale")(out, 5, global_size=0)
        assert out.numpy().tolist() == (values[::-2] + 2 * frozen).tolist()
        columns = session.array(np.asfortranarray(np.arange(N, dtype=np.int32).reshape(16, 16)))
        session.kernel(SOURCE, "scale")(columns, 2, global_size=N, local_size=64)
        assert columns.numpy().tolist() == (2 * np.arange(N).reshape(16, 16)).tolist()
        swapped = session.array(np.arange(N, dtype=np.dtype(np.int32).newbyteorder("S")))
        session.kernel(SOURCE, "scale")(swapped, 2, global_size=N, local_size=64)
        assert swapped.numpy().tolist() == (2 * np.arange(N)).tolist()
        one = session.array(np.int32(5))
        session.kernel(SOURCE, "scale")(one, 2, global_size=1)
        assert one.numpy() == 10


def test_a_flag_is_as_true_as_it_is_in_numpy(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        flag = session.array([0])
        assert not flag
        flag[0] = 1
        assert flag
        with pytest.raises(ValueError, match="more than one element is ambiguous"):
            bool(session.array([1, 2]))


@pytest.mark.parametrize("device", ["cpu", "cpu2"])
def test_a_write_outside_an_array_is_found_out(opened: OpenCLBackend, device: str) -> None:
    with Session(backend=opened) as session:
        whole, a = session.array(np.ones(N, np.int32)), session.array(np.ones(N, np.int32), name="a")
        scale = session.kernel(SOURCE, "scale")
        scale(a, 2, global_size=N + 64, local_size=64, device=device)
        with pytest.raises(
            DataLost, match=r"wrote out of bounds.* at byte 1024 of the argument 'a'.*'a' is lost"
        ):
            session.wait()
        scale(whole, 3, global_size=N, local_size=64, device=device)
        assert whole.numpy().tolist() == [3] * N


def test_threads_may_share_a_session(opened: OpenCLBackend) -> None:
    failures: list[BaseException] = []
    with Session(backend=opened) as session:
        counter = session.zeros(N, np.int32)
        plus = session.kernel("kernel void plus(global int *a, int by) { a[get_global_id(0)] += by; }")

        def work(by: int) -> None:
            try:
                for _ in range(50):
                    plus(counter, by, global_size=N, local_size=64)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(by,)) for by in (1, 10, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert counter.numpy().tolist() == [5550] * N


def test_what_was_launched_before_a_session_closes_is_there_and_nothing_is_launched_afterwards() -> None:
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False, copying=("cpu",))
    session = Session(drivers=drivers)
    a, scale = session.array(np.ones(N, np.int32)), session.kernel(SOURCE, "scale")
    scale(a, 3, global_size=N, local_size=64)
    session.close()
    session.close()
    assert a.numpy().tolist() == [3] * N
    for late in (lambda: scale(a, 3, global_size=N, local_size=64), lambda: session.zeros(1, np.int32)):
        with pytest.raises(InvalidSetting, match="The session is closed"):
            late()


def test_what_is_no_argument_is_refused_in_words(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session, Session(backend=opened) as other:
        a, b = session.zeros(N, np.int32), other.zeros(N, np.int32)
        front = session.kernel(SOURCE, "front")
        for wrong, said in (
            (
                np.zeros(N, np.int32),
                r"give one of this session, such as session.array\(values\), not ndarray",
            ),
            (b, "is an array of another session"),
            (session.zeros(N, np.float32), "give int32, not float32"),
            (session.zeros(0, np.int32), "give it an array that is not empty"),
        ):
            with pytest.raises(InvalidSetting, match=said):
                front(a, wrong, global_size=N)
        for size in ((4, 4, 4, 4), 16.0, "16"):
            with pytest.raises(InvalidSetting, match="is one to three whole numbers"):
                front(a, a, global_size=size)  # type: ignore[arg-type]
        for factor in (1.5, np.int64(1 << 40), float("nan")):
            with pytest.raises(InvalidSetting, match="The argument 'factor' is int, not"):
                session.kernel(SOURCE, "scale")(a, factor, global_size=N)
        with pytest.raises(CompileError, match="inline assembly"):
            session.kernel('kernel void f(global int *a) { __asm__("nop"); a[0] = 1; }')
        with pytest.raises(InvalidSetting, match="takes 2 arguments"):
            front(a, global_size=N)
        with pytest.raises(UnknownName, match=r"No kernel called 'frnt'. Did you mean 'front'"):
            session.kernel(SOURCE, "frnt")
        with pytest.raises(InvalidSetting, match="An array of object cannot go to a device"):
            session.array([object()])
        with pytest.raises(UnknownName, match="No device called 'gpu7'"):
            front(a, session.zeros(N, np.int32), global_size=N, device="gpu7")


def test_only_what_a_device_lacks_is_moved(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a, b, c = session.array(np.ones(N, np.int32)), session.zeros(N, np.int32), session.zeros(N, np.int32)
        session.timeline()
        front, line = session.kernel(SOURCE, "front"), {"global_size": 64, "local_size": 64}
        for _ in range(5):
            front(a, b, **line, device="cpu2")
        front(b, c, **line, device="cpu2")
        assert session.locations_of(b) == ["host", "cpu2"] or "part of it on host" in session.locations_of(b)
        events = session.timeline()
        copies = [(event.what, event.nbytes) for event in events if "→" in event.what or "←" in event.what]
        # A quarter of `a` is read; `b` and `c` start as zeros, which nobody need send.
        assert copies == [("array 1 → cpu2", 256)]
        assert [event.what for event in events].count("front") == 6
        assert c[:64].tolist() == [9] * 64
        assert c[64:].tolist() == [0] * (N - 64)


def test_values_change_without_a_launch_being_prepared_anew(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a = session.array(np.ones(N, np.int32))
        bound = session.kernel(SOURCE, "scale").bind(a, 2, global_size=N, local_size=64, device="cpu2")
        for factor in (3, 5, -1):
            bound(factor)
        bound()
        assert a.numpy().tolist() == [-30] * N
        assert list(bound.numbers) == [1]
        with pytest.raises(InvalidSetting, match="takes 1 values"):
            bound(1, 2)


def test_local_memory_is_an_argument(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a, out = session.array(np.ones(N, np.int32)), session.zeros(4, np.int32)
        session.kernel(SOURCE, "sums")(a, out, LocalMemory(256), global_size=N, local_size=64)
        assert out.numpy().tolist() == [64] * 4


def test_numpy_and_other_libraries_see_an_array(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a = session.array(np.arange(N, dtype=np.int32))
        scale = session.kernel(SOURCE, "scale")
        scale(a, 2, global_size=N, local_size=64, device="cpu2")
        assert int(np.asarray(a).sum()) == N * (N - 1)
        view = a.view()
        assert not view.flags.writeable
        shared = np.from_dlpack(a)
        # It is the same memory: what a library writes, launches see, and after a wait the other way round.
        a.home[0] = 7
        scale(a, 10, global_size=N, local_size=64, device="cpu2")
        session.wait()
        assert shared[:3].tolist() == [70, 20, 40]


def test_torch_shares_an_arrays_memory(opened: OpenCLBackend) -> None:
    torch = pytest.importorskip("torch")
    with Session(backend=opened) as session:
        a = session.array(np.arange(N, dtype=np.float32))
        tensor = torch.from_dlpack(a)
        tensor += 1
        assert a.numpy()[:3].tolist() == [1.0, 2.0, 3.0]


def _run(session: Session, front: SessionKernel, a: SessionArray, out: SessionArray) -> None:
    front(a, out, global_size=N, local_size=64, device="cpu2")
    session.wait()


def test_a_device_that_dies_costs_what_it_held_and_no_more() -> None:
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(drivers, Limits(seconds=20)) as backend, Session(backend=backend) as session:
        kept = session.array(np.full(N, 7, np.int32), name="kept")
        gone, out = session.array(np.ones(N, np.int32), name="gone"), session.zeros(N, np.int32, name="out")
        front = session.kernel(SOURCE, "front")
        front(kept, gone, global_size=64, local_size=64, device="cpu2")
        session.wait()
        assert backend.worker.process_id is not None
        os.kill(backend.worker.process_id, signal.SIGKILL)
        with pytest.raises(DataLost, match=r"died of SIGKILL .*'gone' is lost: 256 of 1024 bytes"):
            _run(session, front, gone, out)
        with pytest.raises(DataLost, match="'gone' is lost"):
            gone.numpy()
        assert kept.numpy().tolist() == [7] * N
        gone[...] = 2  # it is whole again once it was written as a whole
        front(gone, out, global_size=N, local_size=64, device="cpu2")
        assert out.numpy().tolist() == [6] * N


def test_a_loop_goes_on_where_a_device_died_in_the_middle_of_it() -> None:
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    with OpenCLBackend(drivers, Limits(seconds=20)) as backend, Session(backend=backend) as session:
        a = session.array(np.ones(N, np.int32), name="a")
        scale = session.kernel(SOURCE, "scale").bind(a, 3, global_size=N, local_size=64)
        for _ in range(40):
            scale()
        session.wait()
        assert backend.worker.process_id is not None
        os.kill(backend.worker.process_id, signal.SIGKILL)
        for _ in range(3000):  # more than are kept for it
            try:
                scale()
            except DataLost:
                break
        else:
            with pytest.raises(DataLost, match=r"died of SIGKILL .*'a' is lost: all"):
                session.wait()
        a[...] = 2
        scale()
        assert a.numpy().tolist() == [6] * N


def test_a_device_that_dies_while_results_come_home_takes_them_with_it() -> None:
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(drivers, Limits(seconds=20)) as backend, Session(backend=backend) as session:
        kept, gone = (session.array(np.ones(N, np.int32), name=name) for name in ("kept", "gone"))
        scale = session.kernel(SOURCE, "scale")
        scale(kept, 2, global_size=N, local_size=64, device="cpu2")
        assert kept[0] == 2
        scale(gone, 2, global_size=N, local_size=64, device="cpu2")
        session.wait()
        assert backend.worker.process_id is not None
        os.kill(backend.worker.process_id, signal.SIGKILL)
        for _ in range(2):  # that it was about to come home does not make it whole
            with pytest.raises(DataLost, match="'gone' is lost: all"):
                gone.numpy()
        scale(kept, 3, global_size=N, local_size=64, device="cpu2")
        assert kept.numpy().tolist() == [6] * N


def test_all_parts_of_an_array_that_were_being_written_are_lost() -> None:
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    with OpenCLBackend(drivers, Limits(seconds=20)) as backend, Session(backend=backend) as session:
        a, out = session.array(np.ones(N, np.int32), name="a"), session.zeros(N, np.int32, name="out")
        front, spin = session.kernel(SOURCE, "front"), session.kernel(SOURCE, "spin")
        other = session.zeros(64, np.int32, name="other")
        spin(other, 1, global_size=64, local_size=64)
        front(a, out, global_size=64, local_size=64)
        front(a, out, global_size=64, local_size=64, offset=128)
        session.wait()
        spin(other, 100_000_000, global_size=64, local_size=64)
        front(a, out, global_size=64, local_size=64)
        front(a, out, global_size=64, local_size=64, offset=128)
        assert backend.worker.process_id is not None
        os.kill(backend.worker.process_id, signal.SIGKILL)
        with pytest.raises(DataLost, match=r"'out' is lost: 512 of 1024 bytes .*'other' is lost: all"):
            session.wait()
        assert a.numpy().tolist() == [1] * N


def test_what_waits_behind_a_kernel_that_does_not_end_is_stopped_too() -> None:
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    with OpenCLBackend(drivers, Limits(seconds=2)) as backend, Session(backend=backend) as session:
        a = session.zeros(N, np.int32, name="a")
        spin = session.kernel(SOURCE, "spin").bind(a, 2_000_000_000, global_size=N, local_size=64)

        def queue_many() -> None:
            for _ in range(3000):
                spin()

        with pytest.raises(DataLost, match=r"stopped 2 s after .*'a' is lost"):
            queue_many()


def test_launches_that_need_nothing_of_each_other_run_at_once(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a, b = session.array(np.ones(N, np.int32)), session.array(np.ones(N, np.int32))
        spin, scale = session.kernel(SOURCE, "spin"), session.kernel(SOURCE, "scale")
        spin(a, 1, global_size=N, local_size=64, device="cpu")
        scale(b, 1, global_size=N, local_size=64, device="cpu2")  # drivers compile at the first launch
        session.timeline()
        spin(a, 1_000_000, global_size=N, local_size=64, device="cpu")
        b[...] = 7  # no launch uses it: nothing is waited for
        scale(b, 3, global_size=N, local_size=64, device="cpu2")
        events = session.timeline()[-3:]
        assert b.numpy().tolist() == [21] * N
    spun, copied, scaled = (next(each for each in events if each.what.startswith(what))
                            for what in ("spin", "array 2 →", "scale"))  # fmt: skip
    assert copied.ended <= scaled.began < spun.ended  # neither waits for what was launched before


def test_a_result_comes_home_while_another_device_goes_on(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a, b = session.array(np.ones(N, np.int32)), session.array(np.ones(N, np.int32))
        spin, scale = session.kernel(SOURCE, "spin"), session.kernel(SOURCE, "scale")
        spin(a, 1, global_size=N, local_size=64, device="cpu")
        scale(b, 2, global_size=N, local_size=64, device="cpu2")  # drivers compile at the first launch
        session.timeline()
        spin(a, 1_000_000, global_size=N, local_size=64, device="cpu")
        for factor in (3, 5, 7):
            scale(b, factor, global_size=N, local_size=64, device="cpu2")
            b[0] = b[1]
        events = session.timeline()
        assert b.numpy().tolist() == [2 * 3 * 5 * 7] * N
    spun = [each for each in events if each.what == "spin"][-1]
    others = [each for each in events if each.device == "cpu2"][-8:]
    assert (
        sorted(each.what for each in others)
        == ["array 2 ← cpu2"] * 3 + ["array 2 → cpu2"] * 2 + ["scale"] * 3
    )
    assert all(each.began < spun.ended for each in others)


def test_a_range_that_changes_with_every_launch_is_not_a_new_kernel_every_time(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a = session.array(np.ones(N, np.int32))
        scale = session.kernel(SOURCE, "scale")
        for size in range(N, 0, -1):
            scale(a, 3, global_size=size, local_size=1)
        expected = np.int32(3) ** np.arange(N, 0, -1).astype(np.uint32)
        assert a.numpy().tolist() == expected.astype(np.int32).tolist()
        found = session.explain()
        assert sum(each.launches for each in found) == N
        assert len(found) <= 4 * 8 + 1  # quarters of the eight doublings up to 256
        assert session.kernel(SOURCE, "scale") is scale


def test_a_kernel_that_does_not_end_is_stopped_and_the_session_goes_on() -> None:
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    with OpenCLBackend(drivers, Limits(seconds=2)) as backend, Session(backend=backend) as session:
        a, b = session.zeros(N, np.int32, name="a"), session.array(np.ones(N, np.int32), name="b")
        session.kernel(SOURCE, "spin")(a, 2_000_000_000, global_size=N, local_size=64)
        with pytest.raises(JobError, match=r"'a' is lost"):
            session.wait()
        session.kernel(SOURCE, "scale")(b, 4, global_size=N, local_size=64)
        assert b.numpy().tolist() == [4] * N


def test_nothing_is_decided_in_a_steady_loop_and_explain_says_what_was(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        a = session.array(np.ones(N, np.int32))
        bound = session.kernel(SOURCE, "scale").bind(a, 1, global_size=N, local_size=64)
        for _ in range(600):
            bound()
        assert session._planner.plans < 12
        (decision,) = session.explain()
        assert decision.kernel == "scale"
        assert decision.launches == 600
        assert decision.measured
        assert set(decision.milliseconds) == {"cpu", "cpu2"}
        assert decision.reason


def test_results_stay_readable_after_the_session() -> None:
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False, copying=("cpu",))
    with Session(drivers=drivers) as session:
        a = session.array(np.ones(N, np.int32))
        session.kernel(SOURCE, "scale")(a, 3, global_size=N, local_size=64)
    assert a.home.tolist() == [3] * N


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "programs.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, Any] = {}
    exec(compile(code, "programs.md", "exec"), names)
    expected = names["grid"]
    for _ in range(100):
        inner = expected[1:-1, :-2] + expected[1:-1, 2:] + expected[:-2, 1:-1] + expected[2:, 1:-1]
        expected = expected.copy()
        expected[1:-1, 1:-1] = np.float32(0.25) * inner
    np.testing.assert_allclose(names["result"], expected, rtol=1e-5)
    assert capsys.readouterr().out.startswith("spread ")


def test_a_session_knows_macros_with_spaces(opened: OpenCLBackend) -> None:
    source = Source(
        "kernel void add(global int *x) { x[get_global_id(0)] = STEP; }", "opencl",
        build=BuildOptions(defines=("STEP=(3 + 4)",)),
    )  # fmt: skip
    with Session(backend=opened) as session:
        x = session.zeros(N, np.int32)
        session.kernel(source)(x, global_size=N)
        assert x.numpy().tolist() == [7] * N


def test_a_session_for_least_energy_stays_on_the_device_that_draws_less(opened: OpenCLBackend) -> None:
    power = PowerModel(1.0, {"cpu": 5000.0, "cpu2": 5.0}, {"cpu": "given", "cpu2": "given"})
    with Session(backend=opened) as session:
        session.aim_for(objective_of("energy"), power)
        x = session.array(np.arange(N, dtype=np.int32))
        spin = session.kernel(SOURCE, "spin")
        for _ in range(60):
            spin(x, 2000, global_size=N)
        (decision,) = session.explain()
        assert decision.device == "cpu2"
        assert "energy" in decision.reason


def test_the_report_draws_launches_and_copies(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        session.timeline()  # from now on it is kept
        x = session.array(np.arange(N, dtype=np.int32))
        scale = session.kernel(SOURCE, "scale")
        for _ in range(3):
            scale(x, 2, global_size=N, device="cpu2")
        x.numpy()
        page = session.report()
    assert "A session of 3 launches" in page
    assert page.count("scale: ") == 3
    assert "array 1 → cpu2: " in page
    assert "array 1 ← cpu2: " in page
    assert "asked for" in page
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_an_array_without_elements_is_read_and_launched_over(opened: OpenCLBackend) -> None:
    with Session(backend=opened) as session:
        empty, none = session.array(np.zeros(0, np.int32)), session.zeros((0, 3), np.float32)
        session.kernel(SOURCE, "scale")(empty, 3, global_size=0)
        assert empty.numpy().tolist() == []
        assert none.numpy().shape == (0, 3)


def test_a_kernel_is_predicted_without_what_its_copies_take(opened: OpenCLBackend) -> None:
    """Forecasts count copies; a device that copies is believed by its speeds where they say less."""

    def slow_copies(query: LaunchQuery, devices: Sequence[DeviceInfo]) -> Forecast:
        return Forecast({info.id: CostModel(1.0, 1e-6) for info in devices}, 2.0, "a test")

    opened.calibrate([info.id for info in opened.devices() if info.calibration is None])
    with Session(backend=opened, predictor=slow_copies) as session:
        x = session.array(np.arange(N, dtype=np.int32))
        session.kernel(SOURCE, "scale")(x, 3, global_size=N)
        assert x.numpy().tolist() == (3 * np.arange(N)).tolist()
        (decision,) = session.explain()
    assert decision.device == "cpu2"
    assert (
        float(decision.reason.split("predicted ")[1].split()[0]) < 100
    )  # milliseconds, not the forecast's 1000


def test_kernels_that_wait_together_are_prepared_by_one_request() -> None:
    asked: list[str] = []

    class Listening(VisitingWorker):
        def _ask(self, request: str, *arguments: Any, **options: Any) -> Any:
            asked.append(request)
            return super()._ask(request, *arguments, **options)

    backend = OpenCLBackend(DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",)))
    backend.worker = Listening(backend.worker.options)
    with backend, Session(backend=backend) as session:
        a, b, c = (session.array(np.ones(N, np.int32)) for _ in range(3))
        session.kernel(SOURCE, "front")(a, b, global_size=N, local_size=64)
        session.kernel(SOURCE, "add")(a, b, c, global_size=N, local_size=64)
        session.kernel(SOURCE, "scale")(c, 5, global_size=N, local_size=64)
        assert c.numpy().tolist() == [20] * N
        assert asked.count("prepare_stream") == 1
        assert asked.count("attach") <= 2  # the ring, and all arrays


def test_a_kernel_that_a_driver_refuses_stops_none_that_was_launched_before(opened: OpenCLBackend) -> None:
    refused = Source(
        "kernel void f(global int *a) { a[0] = 1; }\n#ifdef WRONG\nno C\n#endif\n", "opencl", "f.cl"
    )
    with Session(backend=opened) as session:
        a, b = session.array(np.ones(N, np.int32)), session.array(np.ones(N, np.int32))
        session.kernel(SOURCE, "scale")(a, 5, global_size=N, local_size=64)
        kernel = session.kernel(refused)
        kernel.build = replace(kernel.build, options="-DWRONG")
        kernel(b, global_size=1)
        c = session.array(np.ones(N, np.int32), name="c")
        session.kernel(SOURCE, "scale")(c, 5, global_size=N, local_size=64)
        with pytest.raises(CompileError, match="refuses the kernel 'f'"):
            session.wait()
        assert a.numpy().tolist() == [5] * N
        with pytest.raises(DataLost, match="'c' is lost: all"):  # it was launched after what failed
            c.numpy()
        c[...] = 1
        assert c.numpy().tolist() == [1] * N
