"""Threads that compute give way to those that feed other devices, for as long as both share launches."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyopencl")

from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl import thread_priority
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, Plan
from apportion.runtime.split import Part

if not sys.platform.startswith("linux"):
    pytest.skip("threads have classes on Linux alone", allow_module_level=True)

SOURCE = (
    "kernel void add(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)] + 1; }"
)
COUNT = 256


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Three CPU devices of two threads each, the last of which is fed as a GPU is."""
    options = DriverOptions(pocl_instances=3, threads=2, vendors=False, copying=("cpu3",))
    with Worker(options, Limits(seconds=20)) as started:
        yield started


def _run(worker: Worker, *devices: str) -> None:
    regions = [worker.shared(np.arange(COUNT, dtype=np.int32))[0] for _ in range(2)]
    cuts = np.linspace(0, COUNT // 16, len(devices) + 1).astype(int).tolist()
    plan = Plan(
        Build(SOURCE, "add"),
        NDRange((COUNT,), (16,)),
        0,
        (
            ArrayPlace("a", regions[0].number, regions[0].nbytes, "<i4"),
            ArrayPlace("b", regions[1].number, regions[1].nbytes, "<i4", "diff"),
        ),
        tuple(Part(device, *cuts[i : i + 2]) for i, device in enumerate(devices)),
    )
    worker.run(plan)


def _behind(worker: Worker) -> set[int]:
    """The worker's threads that run only where no other wants to."""
    threads = {int(task.name) for task in Path(f"/proc/{worker.process_id}/task").iterdir()}
    return {thread for thread in threads if os.sched_getscheduler(thread) == os.SCHED_IDLE}


def _may_come_back() -> bool:
    """Whether a worker of this user may take a thread out of the class again: tried on a process of its own."""
    child = os.fork()
    if child == 0:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NICE, (20, 20))
        os._exit(0 if resource.getrlimit(resource.RLIMIT_NICE)[0] >= 20 else 1)
    return os.waitpid(child, 0)[1] == 0


def test_where_the_system_says_nothing_of_threads_none_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(thread_priority, "_TASKS", tmp_path / "absent")
    assert thread_priority._run_times() == {}
    monkeypatch.setattr(thread_priority, "_TASKS", tmp_path)
    (tmp_path / "7").mkdir()
    assert thread_priority._run_times() == {}
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "schedstat").write_text("1234 5 6\n")
    assert thread_priority._run_times() == {8: 1234}


def test_threads_that_compute_give_way_while_a_device_is_fed_beside_them(worker: Worker) -> None:
    _run(worker, "cpu")
    _run(worker, "cpu", "cpu2")
    assert _behind(worker) == set()  # alone, or as equals
    _run(worker, "cpu", "cpu3")
    first = _behind(worker)
    assert len(first) == 2
    assert worker.process_id not in first  # the one that feeds
    _run(worker, "cpu", "cpu2", "cpu3")
    both = _behind(worker)
    assert first < both
    assert len(both) == 4


@pytest.mark.skipif(not _may_come_back(), reason="needs RLIMIT_NICE of 20 or CAP_SYS_RESOURCE")
def test_launches_that_only_compute_put_threads_back(worker: Worker) -> None:
    _run(worker, "cpu", "cpu3")
    _run(worker, "cpu3")  # nobody computes here
    _run(worker, "cpu")  # once, between two that are shared perhaps
    assert len(_behind(worker)) == 2
    _run(worker, "cpu")
    assert _behind(worker) == set()
    _run(worker, "cpu", "cpu3")
    assert len(_behind(worker)) == 2
    worker.calibrate("cpu")
    assert _behind(worker) == set()
