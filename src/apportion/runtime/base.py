"""What a device is: its description, its speeds, and what a launch on it may take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.jobs.processors import memory_bytes

_UNKNOWN_MEMORY = 8 << 30
"Where the system does not say how much there is."

Value = NDArray[Any] | np.generic | int | float | bytes


@dataclass(frozen=True)
class Calibration:
    """What a device does per second, measured once and kept."""

    to_device: float
    "Bytes per second from the host to the device."
    from_device: float
    "Bytes per second from the device to the host."
    memory: float
    "Bytes per second that a kernel reads and writes in the device's memory."
    arithmetic: float
    "Single-precision multiply-adds per second."
    launch_seconds: float
    "From handing over an empty kernel until it is known to be done."
    worth: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Operation (`program.kernel.work.WORK`) → multiply-adds that one is worth on this device, where that was
    measured; `groups` for starting a work-group."""
    latency: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Operation → seconds that one takes a work-item that is alone, where that was measured; `waits` for
    handing over from a work-group to the next, where each waits for the one before it."""
    left_out: tuple[str, ...] = ()
    "What there was no time to measure, such as `worth angles`: forecasts take usual values for it."

    def __post_init__(self) -> None:
        object.__setattr__(self, "left_out", tuple(self.left_out))  # lists, as JSON has them

    def speeds(self) -> dict[str, float]:
        """Everything under a name of its own: what operations are worth as `worth angles`."""
        return {name: float(getattr(self, name)) for name in _rates()} | {
            f"{table} {name}": float(each) for table in _TABLES for name, each in getattr(self, table).items()
        }


_TABLES = ("worth", "latency")
_NOT_RATES = (*_TABLES, "left_out")


def _rates() -> list[str]:
    """The names of what a calibration holds besides its tables."""
    return [each.name for each in fields(Calibration) if each.name not in _NOT_RATES]


def middle_of(found: Sequence[Calibration]) -> Calibration:
    """The median of several calibrations, number by number: others may use the machine during one of them."""
    rates = {name: statistics.median(getattr(one, name) for one in found) for name in _rates()}
    # What an operation takes was measured, not what it is worth in another one.
    worth = {
        name: rates["arithmetic"] * middle
        for name, middle in _middles([{n: w / one.arithmetic for n, w in one.worth.items()} for one in found])
    }
    latency = dict(_middles([one.latency for one in found]))
    measured = {f"worth {name}" for name in worth} | {f"latency {name}" for name in latency}
    left_out = tuple(name for name in found[0].left_out if name not in measured)
    return Calibration(**rates, worth=worth, latency=latency, left_out=left_out)


def _middles(tables: Sequence[Mapping[str, float]]) -> list[tuple[str, float]]:
    """Every name of some tables, with the median of what those say that have it."""
    names = dict.fromkeys(name for table in tables for name in table)
    return [(name, statistics.median(table[name] for table in tables if name in table)) for name in names]


@dataclass(frozen=True)
class DeviceInfo:
    """One device, as its driver describes it."""

    id: str
    "How the command line and results name it: `cpu`, `cpu2`, `gpu`."
    name: str
    kind: str
    "`cpu`, `gpu` or `accelerator`."
    vendor: str
    platform: str
    driver: str
    version: str
    compute_units: int
    memory_bytes: int
    local_bytes: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...] = (1, 1, 1)
    shares_memory: bool = False
    "Kernels work on the host's memory, without copies."
    double_precision: bool = False
    faults: tuple[str, ...] = ()
    "What is known to go wrong with this driver."
    calibration: Calibration | None = None
    compiler: str = ""
    "What compiles kernels for it, as far as the driver tells."

    def speeds(self) -> dict[str, float]:
        """`Calibration.speeds`; nothing where it was never calibrated."""
        return self.calibration.speeds() if self.calibration is not None else {}


@dataclass(frozen=True)
class LocalMemory:
    """An argument that is memory of each work-group."""

    nbytes: int

    def __post_init__(self) -> None:
        if self.nbytes < 1:
            raise InvalidSetting(f"Local memory must have at least one byte, not {self.nbytes}")


@dataclass(frozen=True)
class Limits:
    """What a worker process may take before it is stopped."""

    seconds: float = 60.0
    "For one launch, or for all launches of one call."
    build_seconds: float = 120.0
    "For compiling a program for every device."
    calibration_seconds: float = 4.0
    """For measuring what one device does per second, before its first launch. What is essential is measured
    however long that takes; what there is no time for is named in `Calibration.left_out`."""
    memory_bytes: int = field(default_factory=lambda: (memory_bytes() or _UNKNOWN_MEMORY) * 8 // 10)
    require_confinement: bool = False
    "Refuse to run kernels where this machine cannot confine the process (`jobs.cage`)."

    def __post_init__(self) -> None:
        for name in ("seconds", "build_seconds", "calibration_seconds", "memory_bytes"):
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"{name} must be more than 0, not {getattr(self, name)}")


def info_from(values: Mapping[str, Any]) -> DeviceInfo:
    """A description from plain values, as they come back from JSON."""
    found = dict(values)
    calibration = found.get("calibration")
    found["calibration"] = Calibration(**calibration) if isinstance(calibration, dict) else calibration
    for name in ("faults", "max_work_item_sizes"):
        found[name] = tuple(found.get(name, ()))
    return DeviceInfo(**found)


UNHURRIED = Limits(calibration_seconds=60.0)
"For devices that are measured because somebody asked for it, not on the way to a launch."
