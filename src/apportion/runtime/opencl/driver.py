"""The OpenCL drivers, inside a worker process: devices found, described, and given launches.

Nothing outside a worker imports this module: a driver that crashes takes only the worker with it.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from apportion.errors import LaunchFailed, NoDevice, UnknownName
from apportion.runtime import memory
from apportion.runtime.base import Calibration, DeviceInfo
from apportion.runtime.opencl.calibration import calibrate
from apportion.runtime.opencl.engine import Engine
from apportion.runtime.opencl.processor import UNKNOWN
from apportion.runtime.opencl.queue import POCL, Queue
from apportion.runtime.opencl.relaunching import Relauncher, serve_again
from apportion.runtime.opencl.running import Prepared, Running
from apportion.runtime.opencl.streams import serve_ring
from apportion.runtime.opencl.thread_priority import ThreadPriority
from apportion.runtime.opencl.visiting import Visitor
from apportion.runtime.plan import Build, LaunchOutcome, Plan
from apportion.runtime.stream import Span, StreamLaunch
from apportion.runtime.visit import Launched, Seen, Visit

Bytes = NDArray[np.uint8]


class Driver:
    """Every device that the loader finds, and the memory that the other process shares."""

    def __init__(self) -> None:
        self.devices = {queue.info.id: queue for queue in _found()}
        self.regions: dict[int, tuple[Bytes, int]] = {}
        self._visitor = Visitor(self.devices)
        self._thread_priority = ThreadPriority()
        self._prepared: dict[int, Prepared] = {}
        self._stream: Engine | None = None
        self._relauncher: Relauncher | None = None

    def describe(self) -> list[DeviceInfo]:
        """All devices, in the order the loader gives them, the CPU first."""
        return [queue.info for queue in self.devices.values()]

    def attach(self, regions: Sequence[tuple[int, int]], descriptors: Sequence[int]) -> None:
        """Map regions that the other process made, by their numbers and bytes."""
        for (number, nbytes), descriptor in zip(regions, descriptors, strict=True):
            self.regions[number] = (memory.attached(descriptor, nbytes), nbytes)

    def detach(self, numbers: Sequence[int]) -> None:
        """Forget regions, and every buffer made for them."""
        for number in numbers:
            self.regions.pop(number, None)
            for queue in self.devices.values():
                queue.forget(number)

    def build(self, build: Build, devices: list[str]) -> dict[str, int]:
        """Compile for these devices; the largest work-group that each allows."""
        return {name: self._queue(name).largest_group(build) for name in devices}

    def calibrate(self, device: str, seconds: float) -> Calibration:
        """What a device does per second, as far as it can be measured in so many seconds."""
        until = time.monotonic() + seconds
        self._thread_priority.arrange()
        return calibrate(self._queue(device), until)

    def run(self, slot: int, plan: Plan, report: Callable[[], None]) -> LaunchOutcome:
        """Launch a kernel's parts on their devices at once, bring the results home and merge them.

        Args:
            slot: where the plan is kept, to be launched `again`; what was there is forgotten.
            report: called once, when every device has compiled the kernel and begun.
        """
        names = [part.device for part in plan.parts] if plan.chunks is None else list(plan.chunks.shares)
        if not names:
            raise NoDevice("The plan gives no device any work")
        self._prepared[slot] = Prepared(plan, [self._queue(name) for name in dict.fromkeys(names)])
        return self._launch(self._prepared[slot], report)

    def again(self, slot: int) -> LaunchOutcome:
        """Launch once more what was launched before."""
        return self._launch(self._prepared[slot], lambda: None)

    def open_again(self, region: int, descriptor: int) -> None:
        """Launch from now on, in a thread of its own, what a ring in shared memory says."""
        self._relauncher = serve_again(self.again, self.regions[region][0][memory.PAGE :], descriptor)

    def again_failure(self) -> None:
        """Raise what the latest launch that came again failed of."""
        if self._relauncher is not None and self._relauncher.failure is not None:
            raise self._relauncher.failure

    def _launch(self, prepared: Prepared, report: Callable[[], None]) -> LaunchOutcome:
        running = Running(prepared, self.regions, report)
        running.compile()
        self._thread_priority.arrange(prepared.queues)
        started = time.perf_counter()
        times = running.launch(started)
        if "printf" in prepared.plan.build.source:
            _flush()
        merging = time.perf_counter()
        if prepared.plan.probe:
            return LaunchOutcome(times, merging - started, covered=running.gapless())
        conflicts, strays = running.bring_together()
        ended = time.perf_counter()
        running.check_guards()
        return LaunchOutcome(times, ended - started, ended - merging, conflicts, strays)

    def engine(self, told: Callable[[int, int, float], None]) -> Engine:
        """What executes the commands of a stream on these devices."""
        return Engine(self.devices, self.regions, told)

    def open_stream(self, region: int, descriptor: int) -> None:
        """Do from now on what a ring in shared memory says, in a thread of its own."""
        self._stream = serve_ring(self.regions[region][0][memory.PAGE :], descriptor, self.engine)

    def prepare_stream(self, numbers: Sequence[int], launches: Sequence[StreamLaunch]) -> None:
        """Compile launches that the ring will name by these numbers."""
        for number, launch in zip(numbers, launches, strict=True):
            self._opened.prepare(number, launch)

    def stream_failure(self) -> None:
        """Raise what a command of the ring failed of."""
        if (failure := self._opened.told_failure()) is not None:
            raise failure

    def stream_timeline(self) -> list[Span]:
        """What the ring's commands did lately; those from now on are kept."""
        found = self._opened.timeline()
        self._opened.tracing = True
        return found

    @property
    def _opened(self) -> Engine:
        if self._stream is None:
            raise LaunchFailed("No stream is open")
        return self._stream

    def visit(self, visit: Visit, report: Callable[[tuple[str, Launched]], None]) -> list[Seen]:
        """Measure one case of a workload on several devices in turn; every launch is told as it ends."""
        self._thread_priority.arrange()
        return self._visitor.visit(visit, report)

    def _queue(self, device: str) -> Queue:
        if device not in self.devices:
            raise UnknownName("device", device, self.devices)
        return self.devices[device]


def _flush() -> None:
    """Write out what kernels printed through the C library, which keeps it back."""
    ctypes.CDLL(None).fflush(None)


def _found() -> list[Queue]:
    """Every device of every platform, each under a short name of its own; CPUs first."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return []
    kinds = {cl.device_type.CPU: "cpu", cl.device_type.GPU: "gpu"}
    found: list[tuple[str, Any, Any]] = []
    for platform in platforms:
        try:
            devices = platform.get_devices()
        except cl.Error:
            continue  # a driver without its hardware
        for device in devices:
            kind = next((name for bit, name in kinds.items() if device.type & bit), "accelerator")
            found.append((kind, platform, device))
    found = _one_pocl(_that_compile(found))
    found.sort(key=lambda entry: ["cpu", "gpu", "accelerator"].index(entry[0]))
    counts: dict[str, int] = {}
    queues = []
    for kind, platform, device in found:
        counts[kind] = counts.get(kind, 0) + 1
        name = kind if counts[kind] == 1 else f"{kind}{counts[kind]}"
        queues.append(Queue(device, _info(name, kind, platform, device)))
    return queues


def _that_compile(found: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """Without PoCL devices that do not know their processor, where a copy is there that does."""
    lost = [entry for entry in found if POCL in entry[1].name and entry[2].version.endswith(f"-{UNKNOWN}")]
    others = [entry for entry in found if entry not in lost]
    return others if any(POCL in entry[1].name for entry in others) else found


def _one_pocl(found: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """Without older versions of PoCL, where one instance was asked for: they would compete for the processor.

    pyopencl's own loader always offers the wheel's, also beside the system's.
    """
    pocl = [entry for entry in found if POCL in entry[1].name]
    if os.environ.get("APPORTION_POCL_INSTANCES") != "1" or len(pocl) < 2:
        return found
    newest = max(
        pocl, key=lambda entry: [int(n) for n in re.findall(r"\d+", entry[1].version.split("PoCL")[-1])[:2]]
    )
    return [entry for entry in found if entry not in pocl or entry is newest]


def _info(name: str, kind: str, platform: Any, device: Any) -> DeviceInfo:
    return DeviceInfo(
        id=name,
        name=device.name.strip(),
        kind=kind,
        vendor=device.vendor.strip(),
        platform=platform.name.strip(),
        driver=device.driver_version.strip(),
        version=platform.version.strip(),
        compute_units=int(device.max_compute_units),
        memory_bytes=int(device.global_mem_size),
        local_bytes=int(device.local_mem_size),
        max_work_group_size=int(device.max_work_group_size),
        max_work_item_sizes=tuple(int(size) for size in device.max_work_item_sizes),
        shares_memory=kind == "cpu" and name not in os.environ.get("APPORTION_COPYING", "").split(","),
        double_precision="cl_khr_fp64" in device.extensions,
        faults=_faults(platform.name, platform.version),
        compiler=_compiler(platform.version, device.opencl_c_version),
    )


def _compiler(version: str, language: str) -> str:
    """`LLVM 14.0.6, OpenCL C 3.0` where the driver tells of its LLVM, else the language alone."""
    llvm = re.search(r"LLVM \d[\d.]*", version)
    words = " ".join(language.split()[:3])
    return f"{llvm[0]}, {words}" if llvm else words


def _faults(platform: str, version: str) -> tuple[str, ...]:
    if POCL not in platform:
        return ()
    return (
        "PoCL 3 to 5 miscompile `continue` across a barrier: every work-item then does what one should",
        "compiles once more for each work-group size, at the first launch",
    )
