"""Trying a hostile kernel: what must hold afterwards, in a test and in the run behind the page of results."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from apportion.errors import ApportionError
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, Plan
from apportion.runtime.split import Part
from apportion.settings import cache_folder
from tests.hostile.kernels import HARMLESS, SECRET, Attempt

PLATFORMS = {
    "pocl": "Portable Computing Language",
    "intel": "Intel(R) OpenCL",
    "nvidia": "NVIDIA CUDA",
    "beside": "Portable Computing Language",
}
"""Whose driver compiles and runs the kernels, and what it calls itself; `beside`: PoCL in a process that has
opened a GPU's driver too, and its device files."""
MEMORY = 2 << 30
_GPU_MEMORY = 8 << 30
"A GPU's driver alone takes one to two gigabytes of the process."
_SPARE_SECONDS = 15.0
"Beyond its deadline: another process with all drivers, on a busy machine."


@contextmanager
def target(driver: str) -> Iterator[tuple[Worker, str]]:
    """A worker that has this driver, and the name of the device.

    Raises:
        KeyError: this machine has no such device.
    """
    with Worker(
        DriverOptions(pocl_instances=1, threads=1, vendors=driver != "pocl"), limits(driver)
    ) as started:
        devices = {info.platform: info.id for info in started.devices()}
        yield started, devices[PLATFORMS[driver]]


def limits(driver: str, seconds: float = 20.0) -> Limits:
    """What a kernel may take."""
    memory = _GPU_MEMORY if driver in ("nvidia", "beside") else MEMORY
    return Limits(seconds=seconds, build_seconds=max(seconds, 5.0), memory_bytes=memory)


def launched(worker: Worker, device: str, source: str, items: int = 1) -> int:
    """Run a kernel over sixteen numbers; the first of them."""
    region, out = worker.shared(np.zeros(16, np.int64))
    place = ArrayPlace("out", region.number, region.nbytes, "<i8", "diff")
    worker.run(
        Plan(Build(source, "attempt"), NDRange((items,), (items,)), 0, (place,), (Part(device, 0, items),))
    )
    return int(out[0])


def problem_of(attempt: Attempt, worker: Worker, device: str, folder: Path, driver: str) -> str | None:
    """What an attempt has done that it must not; None: nothing.

    Args:
        folder: one that is none of the kernel's business, empty.
    """
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    worker.limits = limits(driver)
    assert worker.confinement is not None  # the process is started, if the last attempt ended it
    source = attempt.source(_places(worker, folder, secret))
    worker.limits = limits(driver, attempt.seconds)
    before, started = worker.process_id, time.monotonic()
    said = ""
    try:
        result = launched(worker, device, source, attempt.items)
    except ApportionError as error:
        said = str(error)
        if attempt.allowed and not attempt.exhausts:
            return f"the launch failed: {said}"
    else:
        if -result not in attempt.allowed:
            return f"it came to {errno.errorcode.get(-result, str(result))}"
    if worker.process_id != before and Path(f"/proc/{before}").exists():
        return f"process {before} is still there"
    if (took := time.monotonic() - started) > worker.limits.build_seconds + attempt.seconds + _SPARE_SECONDS:
        return f"it took {took:.0f} s"
    if secret.read_text() != SECRET:
        return "a file of the user is another"
    if SECRET in said or SECRET in worker.printed():
        return "it was told what is in a file of the user"
    if attempt.harm(folder):
        return "the harm was done"
    worker.limits = limits(driver)
    if attempt.exhausts:  # what it left open goes with the process, which the next launch may find out
        try:
            launched(worker, device, HARMLESS)
        except ApportionError:
            worker.close()
    try:
        after = launched(worker, device, HARMLESS)
    except ApportionError as error:
        return f"the next kernel failed: {error}"
    return None if after == 42 else f"the next kernel came to {after}"


def _places(worker: Worker, folder: Path, secret: Path) -> dict[str, str]:
    assert worker._process is not None
    descriptors = sorted(int(entry.name) for entry in Path(f"/proc/{worker.process_id}/fd").iterdir())
    socket = next(
        number
        for number in descriptors
        if os.readlink(f"/proc/{worker.process_id}/fd/{number}").startswith("socket:")
    )
    return {
        "SECRET": str(secret), "OUTSIDE": str(folder), "PARENT": str(os.getpid()),
        "KEEPER": str(worker._process.pid), "CACHE": str(cache_folder("pocl")),
        "PYTHON": os.path.realpath(sys.executable), "SOCKET": str(socket),
        "LOADER": "/lib64/ld-linux-x86-64.so.2",
    }  # fmt: skip
