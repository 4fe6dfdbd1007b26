"""What a kernel tries costs its launch and no more: on PoCL, by system calls that no check of source sees."""

from __future__ import annotations

import errno
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from apportion.errors import JobError
from apportion.jobs import landlock, seccomp
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, Plan
from apportion.runtime.split import Part
from apportion.settings import cache_folder
from tests.hostile.kernels import ATTEMPTS, Attempt

pytest.importorskip("pyopencl")
pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls have other numbers here"),
    pytest.mark.skipif(not landlock.version() or not seccomp.available(), reason="this kernel has no cage"),
    pytest.mark.xdist_group("opencl"),
]
DRIVERS = DriverOptions(pocl_instances=1, threads=1, vendors=False)
MEMORY = 2 << 30


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(DRIVERS, Limits(memory_bytes=MEMORY)) as started:
        yield started


def launched(worker: Worker, source: str) -> int:
    region, out = worker.shared(np.zeros(16, np.int64))
    place = ArrayPlace("out", region.number, region.nbytes, "<i8", "diff")
    worker.run(Plan(Build(source, "attempt"), NDRange((1,), (1,)), 0, (place,), (Part("cpu", 0, 1),)))
    return int(out[0])


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=[f"{one.category}: {one.name}" for one in ATTEMPTS])
def test_a_kernel_that_tries_to_do_harm_costs_its_launch(
    attempt: Attempt, worker: Worker, tmp_path: Path
) -> None:
    assert worker.confinement.whole  # started again where the last attempt ended it
    secret = tmp_path / "secret"
    secret.write_text("mine")
    secret.chmod(0o600)
    assert worker._process is not None
    socket = next(
        int(entry.name)
        for entry in sorted(
            Path(f"/proc/{worker.process_id}/fd").iterdir(), key=lambda entry: int(entry.name)
        )
        if os.readlink(entry).startswith("socket:")
    )
    source = attempt.source(
        {
            "SECRET": str(secret), "OUTSIDE": str(tmp_path), "PARENT": str(os.getpid()),
            "KEEPER": str(worker._process.pid), "CACHE": str(cache_folder("pocl")),
            "PYTHON": os.path.realpath(sys.executable), "SOCKET": str(socket),
            "LOADER": "/lib64/ld-linux-x86-64.so.2",
        }
    )  # fmt: skip
    worker.limits = Limits(seconds=attempt.seconds, memory_bytes=MEMORY)
    before, started = worker.process_id, time.monotonic()
    if attempt.allowed:
        with suppress(*([JobError] if attempt.exhausts else [])):
            result = launched(worker, source)
            assert -result in attempt.allowed, errno.errorcode.get(-result, result)
    else:
        with pytest.raises(JobError):
            launched(worker, source)
        assert not Path(f"/proc/{before}").exists()
    assert time.monotonic() - started < attempt.seconds + 15
    assert secret.read_text() == "mine"
    assert not attempt.harm(tmp_path)
    harmless = "kernel void attempt(global long *out) { out[0] = 42; }"
    if attempt.exhausts:  # what it left open goes with the process, which the next launch may find out
        with suppress(JobError):
            launched(worker, harmless)
    assert launched(worker, harmless) == 42
