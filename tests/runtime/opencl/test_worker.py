"""What a kernel can do wrong costs its launch, and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from apportion.errors import (
    CompileError,
    DeadlineExceeded,
    LimitExceeded,
    OutOfBoundsWrite,
    UnknownName,
    WorkerCrashed,
)
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, Chunks, LaunchOutcome, Plan
from apportion.runtime.split import Part

SOURCE = """
kernel void add(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)] + 1; }
kernel void hang(global const int *a, global int *b) { volatile int on = 1; while (on) {} b[0] = a[0]; }
kernel void past(global const int *a, global int *b) { b[get_global_id(0) + 3] = a[get_global_id(0)]; }
kernel void before(global const int *a, global int *b) { b[(int)get_global_id(0) - 2] = a[get_global_id(0)]; }
kernel void nowhere(global const int *a, global int *b) { *(volatile global int *)(size_t)16 = a[0]; }
kernel void trap(global const int *a, global int *b) { if (a[0] == 0) __builtin_trap(); }
"""
COUNT = 256


def _run(
    worker: Worker, kernel: str, *devices: str, source: str = SOURCE
) -> tuple[LaunchOutcome, np.ndarray]:
    inside, _ = worker.shared(np.arange(COUNT, dtype=np.int32))
    outside, result = worker.shared(np.zeros(COUNT, np.int32))
    groups = COUNT // 16
    cuts = np.linspace(0, groups, len(devices) + 1).astype(int).tolist()
    plan = Plan(
        Build(source, kernel),
        NDRange((COUNT,), (16,)),
        0,
        (
            ArrayPlace("a", inside.number, inside.nbytes, "<i4"),
            ArrayPlace("b", outside.number, outside.nbytes, "<i4", "diff"),
        ),
        tuple(Part(device, *cuts[i : i + 2]) for i, device in enumerate(devices)),
    )
    return worker.run(plan), result


@pytest.fixture
def doomed() -> Callable[..., Worker]:
    """A worker that a test may ruin; it shares the compiled kernels of the others."""
    pytest.importorskip("pyopencl")
    started: list[Worker] = []

    def start(**limits: float) -> Worker:
        started.append(Worker(DriverOptions(pocl_instances=2, threads=1, vendors=False), Limits(**limits)))
        return started[-1]

    yield start  # type: ignore[misc]
    for worker in started:
        worker.close()


def test_three_devices_share_one_range(worker: Worker) -> None:
    outcome, result = _run(worker, "add", "cpu", "cpu2", "cpu3")
    assert result.tolist() == list(range(1, COUNT + 1))
    assert [time.groups for time in outcome.devices] == [5, 5, 6]
    assert outcome.conflicts == {"b": 0}


def test_chunks_cover_the_range_from_both_ends(worker: Worker) -> None:
    inside, _ = worker.shared(np.arange(COUNT, dtype=np.int32))
    outside, result = worker.shared(np.zeros(COUNT, np.int32))
    places = (
        ArrayPlace("a", inside.number, inside.nbytes, "<i4"),
        ArrayPlace("b", outside.number, outside.nbytes, "<i4", "diff"),
    )
    chunks = Chunks({"cpu": 0.5, "cpu3": 0.5}, first=0.5)
    outcome = worker.run(Plan(Build(SOURCE, "add"), NDRange((COUNT,), (16,)), 0, places, chunks=chunks))
    assert result.tolist() == list(range(1, COUNT + 1))
    (left, right) = (time.ranges for time in outcome.devices)
    assert left[0][0] == 0
    assert right[0][1] == COUNT // 16
    assert left[0][1] == right[0][0]


def test_a_write_past_an_array_is_found_on_every_kind_of_device(worker: Worker) -> None:
    for device in ("cpu", "cpu3"):
        with pytest.raises(
            OutOfBoundsWrite, match=r"'past' wrote out of bounds.* at byte 1024 of the argument 'b'"
        ):
            _run(worker, "past", device)


def test_a_write_before_an_array_is_found(worker: Worker) -> None:
    with pytest.raises(OutOfBoundsWrite, match=r"at byte -[1-8] of the argument 'b', which has 1024"):
        _run(worker, "before", "cpu")


def test_the_device_works_again_after_an_overrun(worker: Worker) -> None:
    with pytest.raises(OutOfBoundsWrite):
        _run(worker, "past", "cpu3")
    assert _run(worker, "add", "cpu3")[1][0] == 1


def test_a_kernel_that_never_ends_is_stopped_at_its_deadline(doomed: Callable[..., Worker]) -> None:
    worker = doomed(seconds=0.5)
    with pytest.raises(DeadlineExceeded, match=r"stopped after 0.5 s of running 'hang' on cpu, cpu2"):
        _run(worker, "hang", "cpu", "cpu2")
    assert worker.restarts == 1
    assert _run(worker, "add", "cpu", "cpu2")[1][-1] == COUNT


def test_a_crash_names_the_signal_and_the_worker_is_replaced(doomed: Callable[..., Worker]) -> None:
    worker = doomed()
    with pytest.raises(WorkerCrashed, match=r"died of SIGSEGV while running 'nowhere' on cpu"):
        _run(worker, "nowhere", "cpu")
    with pytest.raises(WorkerCrashed, match=r"died of SIG(ILL|TRAP) while running 'trap' on cpu"):
        _run(worker, "trap", "cpu")
    assert worker.restarts == 2
    assert _run(worker, "add", "cpu")[1][0] == 1


def test_a_compiler_that_crashes_costs_the_launch(doomed: Callable[..., Worker]) -> None:
    worker = doomed()
    # PoCL inlines every call, for ever; and a pragma makes any clang give up.
    recursion = "int f(int n, global int *a) { return n < 2 ? a[n] : f(n - 1, a) + f(n - 2, a); }\n"
    recursion += "kernel void deep(global const int *a, global int *b) { b[0] = f(a[1], b); }"
    with pytest.raises(WorkerCrashed, match=r"died of SIGSEGV while running 'deep' on cpu"):
        _run(worker, "deep", "cpu", source=recursion)
    with pytest.raises(WorkerCrashed, match=r"died of SIGABRT .* It said: LLVM ERROR: #pragma clang __debug"):
        _run(worker, "add", "cpu", source="#pragma clang __debug llvm_fatal_error\n" + SOURCE)
    assert _run(worker, "add", "cpu")[1][0] == 1


def test_a_worker_that_takes_too_much_memory_is_stopped(doomed: Callable[..., Worker]) -> None:
    worker = doomed(memory_bytes=20 << 20)  # less than a driver needs to compile
    with pytest.raises(LimitExceeded, match=r"bytes of memory while .*; its limit is 20971520"):
        _run(worker, "add", "cpu")


def test_an_array_beyond_the_memory_limit_is_refused_at_once(doomed: Callable[..., Worker]) -> None:
    with pytest.raises(LimitExceeded, match=r"An array of 2048 bytes is more than the 1024 bytes"):
        doomed(memory_bytes=1024).region(2048)


def test_source_that_a_driver_refuses_is_a_compile_error(worker: Worker) -> None:
    with pytest.raises(CompileError, match=r"The compiler of cpu .* refuses the kernel 'broken'") as caught:
        worker.build(Build("kernel void broken(global int *a) { a[0] = ; }", "broken"), ["cpu"])
    assert "expected expression" in caught.value.diagnostics


def test_an_unknown_device_names_those_there_are(worker: Worker) -> None:
    with pytest.raises(UnknownName, match=r"No device called 'gpu7'. There are: cpu, cpu2, cpu3."):
        worker.build(Build(SOURCE, "add"), ["gpu7"])


def test_closing_twice_does_nothing_and_the_process_is_gone(doomed: Callable[..., Worker]) -> None:
    worker = doomed()
    worker.devices()
    pid = worker.process_id
    assert pid is not None
    worker.close()
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_that_was_killed_from_outside_is_replaced(doomed: Callable[..., Worker]) -> None:
    worker = doomed()
    worker.devices()
    assert worker.process_id is not None
    os.kill(worker.process_id, signal.SIGKILL)
    with pytest.raises(WorkerCrashed, match=r"SIGKILL"):
        _run(worker, "add", "cpu")
    assert _run(worker, "add", "cpu")[1][0] == 1


def test_a_worker_ends_soon_after_the_process_that_started_it() -> None:
    pytest.importorskip("pyopencl")
    code = "from apportion.runtime.opencl.worker import Worker; w = Worker(); w.devices(); print(w.process_id, flush=True);"
    with subprocess.Popen(
        [sys.executable, "-c", code + "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = Path("/proc") / parent.stdout.readline().strip()
        assert child.exists()
        parent.kill()
    end = time.monotonic() + 20
    with suppress(FileNotFoundError):  # gone; what nobody waits for stays as a zombie
        while "State:\tZ" not in (child / "status").read_text():
            assert time.monotonic() < end
            time.sleep(0.1)


def test_instances_of_pocl_run_in_threads_of_their_own(worker: Worker) -> None:
    """The proof that they are independent: both are busy, and neither's time contains the other's."""
    _run(worker, "add", "cpu", "cpu2")
    libraries = {
        line.split()[-1]
        for line in Path(f"/proc/{worker.process_id}/maps").read_text().splitlines()
        if "libpocl" in line
    }
    # Where the wheel's does not know the processor it is loaded, and not used.
    assert len(libraries) == 3 + any("/pocl1-" in library for library in libraries)
