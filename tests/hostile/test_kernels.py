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
from apportion.runtime.opencl.platforms import intel_library
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
PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
MEMORY = 2 << 30


@pytest.fixture(scope="module", params=PLATFORMS)
def target(request: pytest.FixtureRequest) -> Iterator[tuple[Worker, str]]:
    """A worker with one driver, and the name of its device."""
    if request.param == "intel" and intel_library() is None:
        pytest.skip("Intel's CPU runtime is not here: pip install 'apportion[intel]'")
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=request.param == "intel")
    with Worker(drivers, Limits(memory_bytes=MEMORY)) as started:
        devices = {info.platform: info.id for info in started.devices()}
        yield started, devices[PLATFORMS[request.param]]


def launched(worker: Worker, device: str, source: str) -> int:
    region, out = worker.shared(np.zeros(16, np.int64))
    place = ArrayPlace("out", region.number, region.nbytes, "<i8", "diff")
    worker.run(Plan(Build(source, "attempt"), NDRange((1,), (1,)), 0, (place,), (Part(device, 0, 1),)))
    return int(out[0])


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=[f"{one.category}: {one.name}" for one in ATTEMPTS])
def test_a_kernel_that_tries_to_do_harm_costs_its_launch(
    attempt: Attempt, target: tuple[Worker, str], tmp_path: Path
) -> None:
    worker, device = target
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
            result = launched(worker, device, source)
            assert -result in attempt.allowed, errno.errorcode.get(-result, result)
    else:
        with pytest.raises(JobError):
            launched(worker, device, source)
        assert not Path(f"/proc/{before}").exists()
    assert time.monotonic() - started < attempt.seconds + 15
    assert secret.read_text() == "mine"
    assert not attempt.harm(tmp_path)
    harmless = "kernel void attempt(global long *out) { out[0] = 42; }"
    if attempt.exhausts:  # what it left open goes with the process, which the next launch may find out
        with suppress(JobError):
            launched(worker, device, harmless)
    assert launched(worker, device, harmless) == 42
