"""OpenCL devices: found, described, calibrated, and run one at a time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from apportion.errors import NoDevice, UnknownName
from apportion.runtime.base import (
    Calibration,
    Device,
    DeviceInfo,
    Launch,
    Limits,
    LocalMemory,
    Timing,
    middle_of,
)
from apportion.runtime.memory import Region
from apportion.runtime.opencl.platforms import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, LocalPlace, Plan, ValuePlace
from apportion.runtime.split import Part
from apportion.settings import cache_folder

_TIMES = 3
_MEASURED_AS = 5
"Changes when calibrating changes, so that what was measured otherwise is not believed."


class OpenCLDevice(Device):
    """One OpenCL device, behind a worker process.

    Args:
        device: its id (`cpu`, `gpu` …).
        worker: the process that owns the drivers; a device without one starts its own, and closes it.
    """

    def __init__(
        self, device: str = "cpu", worker: Worker | None = None, limits: Limits | None = None
    ) -> None:
        self._owned = worker is None
        self.worker = worker or Worker(limits=limits)
        self.info = info_of(device, self.worker.devices())
        self._regions: dict[tuple[int, int], Region] = {}

    def run(self, launch: Launch) -> Timing:
        """Run a kernel over its whole range; every array among its arguments holds the results afterwards."""
        places: list[ArrayPlace | ValuePlace | LocalPlace] = []
        arrays = []
        for number, value in enumerate(launch.arguments):
            name = f"argument {number}"
            match value:
                case LocalMemory():
                    places.append(LocalPlace(name, value.nbytes))
                case np.ndarray() if value.ndim:
                    key = (number, value.nbytes)
                    if key not in self._regions:
                        self._regions[key] = self.worker.region(value.nbytes)
                    region = self._regions[key]
                    shared = region.array(value.dtype, value.shape)
                    shared[...] = value
                    # Nothing is known of what the kernel writes, so everything comes back.
                    places.append(ArrayPlace(name, region.number, value.nbytes, value.dtype.str, "diff"))
                    arrays.append((value, shared))
                case bytes():
                    places.append(ValuePlace(name, value))
                case _:
                    places.append(ValuePlace(name, np.asarray(value).tobytes()))
        groups = launch.span.groups[0]
        outcome = self.worker.run(
            Plan(
                Build(launch.source, launch.kernel, launch.options),
                launch.span,
                0,
                tuple(places),
                parts=(Part(self.info.id, 0, groups),),
            )
        )
        for value, shared in arrays:
            if value.flags.writeable:
                value[...] = shared
        (time,) = outcome.devices
        return Timing(outcome.seconds, time.upload, time.kernel, time.download)

    def close(self) -> None:
        """End the worker, if it is this device's own."""
        self._regions.clear()
        if self._owned:
            self.worker.close()


def devices(options: DriverOptions = DEFAULT_DRIVERS) -> list[DeviceInfo]:
    """Every OpenCL device of this machine, with its calibration where one is kept."""
    with Worker(options) as worker:
        return described(worker)


def described(worker: Worker) -> list[DeviceInfo]:
    """A worker's devices, with their calibrations where they are kept."""
    return [dataclasses.replace(info, calibration=_kept(info)) for info in worker.devices()]


def with_speeds(worker: Worker) -> list[DeviceInfo]:
    """A worker's devices with their calibrations; those that were never measured are measured now."""
    known = described(worker)
    strangers = [info.id for info in known if info.calibration is None]
    measured = {info.id: info for info in calibrated(worker, strangers)} if strangers else {}
    return [measured.get(info.id, info) for info in known]


def calibrated(worker: Worker, devices: Sequence[str] | None = None) -> list[DeviceInfo]:
    """A worker's devices, or those of these ids, each measured now and kept for later."""
    found = []
    for info in worker.devices():
        if devices is not None and info.id not in devices:
            continue
        calibration = middle_of([worker.calibrate(info.id) for _ in range(_TIMES)])
        _calibration_file(info).write_text(json.dumps(dataclasses.asdict(calibration)))
        found.append(dataclasses.replace(info, calibration=calibration))
    return found


def info_of(device: str, known: list[DeviceInfo]) -> DeviceInfo:
    """The device of this id.

    Raises:
        NoDevice: there is none at all.
        UnknownName: there is none of this id.
    """
    if not known:
        raise NoDevice("No OpenCL device was found. Install one with: pip install 'apportion[opencl]'")
    for info in known:
        if info.id == device:
            return info
    raise UnknownName("device", device, [info.id for info in known])


def _kept(info: DeviceInfo) -> Calibration | None:
    try:
        values: dict[str, Any] = json.loads(_calibration_file(info).read_text())
        return Calibration(**values)
    except (OSError, ValueError, TypeError):
        return None


def _calibration_file(info: DeviceInfo) -> Any:
    what = (_MEASURED_AS, info.id, info.name, info.platform, info.driver, info.compute_units)
    digest = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
    return cache_folder("calibrations") / f"{info.id}-{digest}.json"
