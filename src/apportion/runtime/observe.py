"""Observers: what a machine's own meters say of launches: energy, and what the system counts for a process.

A meter is only read, before and after; one that this process may not read is not there. Intel's (RAPL) counts
the processor's package, NVIDIA's (NVML) the whole card, each also what is not ours. NVIDIA's moves about ten
times a second, so that only what takes longer than that is told apart. The system's own counters (processor
time, page faults, switches) are those of the worker process, in which kernels of CPU devices run.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":
    import resource

_PACKAGES = Path("/sys/class/powercap")
_STAT = Path("/proc/stat")
SWITCH = "APPORTION_OBSERVE"
"The environment variable that switches observers on: `energy`, `counters`, or both with a comma between."


@dataclass(frozen=True)
class Observer:
    """A meter that only grows."""

    name: str
    read: Callable[[], float]
    energy: bool = False
    "Whether it counts joules."

    @classmethod
    def found(cls) -> list[Observer]:
        """The meters of this machine that may be read; none unless they were switched on."""
        wanted = os.environ.get(SWITCH, "").split(",")
        energy = energy_meters() if "energy" in wanted else []
        return [*energy, *(_counters() if "counters" in wanted else [])]


def energy_meters() -> list[Observer]:
    """The meters of energy that this process may read, whether or not they were switched on."""
    return [*packages(_PACKAGES), *_cards()]


def _counters() -> list[Observer]:
    """What the system counts for this process, all of its threads together."""

    if sys.platform == "win32":
        return []

    def used() -> resource.struct_rusage:
        return resource.getrusage(resource.RUSAGE_SELF)

    return [
        Observer("processor seconds", lambda: used().ru_utime + used().ru_stime),
        Observer("page faults", lambda: float(used().ru_minflt + used().ru_majflt)),
        Observer("switches", lambda: float(used().ru_nvcsw + used().ru_nivcsw)),
    ]


@dataclass(frozen=True)
class ProcessorTime:
    """What became of a machine's processors since it started."""

    used: float
    "Seconds in which they worked for somebody on this machine, all of them together."
    steal: float
    "Steal time: seconds of waiting for a processor that the hypervisor had given to another machine."

    def steal_part_since(self, before: ProcessorTime) -> float:
        """Steal time since then, as a part of all time in which processors were wanted here."""
        steal, used = self.steal - before.steal, self.used - before.used
        return steal / (used + steal) if used + steal > 0 else 0.0


def processor_time(path: Path = _STAT) -> ProcessorTime | None:
    """What Linux says of all processors together; None where it does not."""
    try:
        words = path.read_text().split("\n", 1)[0].split()
        user, nice, system, _, _, irq, soft, steal = map(int, words[1:9])
    except (OSError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    return ProcessorTime((user + nice + system + irq + soft) / tick, steal / tick)


def packages(folder: Path) -> list[Observer]:
    """Intel's meters, one for each processor package."""
    found = []
    for place in sorted(folder.glob("intel-rapl:?")):
        meter = place / "energy_uj"
        try:
            int(meter.read_text())
        except (OSError, ValueError):
            continue  # only root may read it on most machines

        def joules(meter: Path = meter) -> float:
            return int(meter.read_text()) * 1e-6

        found.append(Observer(f"package {place.name.partition(':')[2]}", joules, energy=True))
    return found


def _cards() -> list[Observer]:
    """NVIDIA's meters, one for each card."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if library.nvmlInit_v2():
        return []
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found = []
    for number in range(count.value):
        handle = ctypes.c_void_p()
        millijoules = ctypes.c_ulonglong()
        if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
            continue
        if library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)):
            continue

        def joules(handle: ctypes.c_void_p = handle) -> float:
            value = ctypes.c_ulonglong()
            library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value))
            return value.value * 1e-3

        found.append(Observer(f"card {number}", joules, energy=True))
    return found
