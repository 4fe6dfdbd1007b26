"""Observers: what a machine's own meters say of the energy that launches take.

A meter is only read, before and after; one that this process may not read is not there. Intel's (RAPL) counts
the processor's package, NVIDIA's (NVML) the whole card, each also what is not ours. NVIDIA's moves about ten
times a second, so that only what takes longer than that is told apart.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = Path("/sys/class/powercap")
SWITCH = "APPORTION_OBSERVE"
"The environment variable that switches observers on, by `energy`."


@dataclass(frozen=True)
class Observer:
    """A meter of energy that only grows."""

    name: str
    joules: Callable[[], float]

    @classmethod
    def found(cls) -> list[Observer]:
        """The meters of this machine that may be read; none unless they were switched on."""
        if os.environ.get(SWITCH) != "energy":
            return []
        return [*packages(_PACKAGES), *_cards()]


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

        found.append(Observer(f"package {place.name.partition(':')[2]}", joules))
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

        found.append(Observer(f"card {number}", joules))
    return found
