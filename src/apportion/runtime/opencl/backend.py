"""The backend `opencl`: every OpenCL device, behind a worker process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

from apportion.errors import JobError
from apportion.jobs.cage import Confinement
from apportion.runtime.backend import Backend
from apportion.runtime.base import Calibration, DeviceInfo, Limits, middle_of
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.known_devices import keep_devices
from apportion.runtime.memory import Region
from apportion.runtime.opencl.streams import WorkerStream
from apportion.runtime.opencl.visiting_worker import VisitingWorker
from apportion.runtime.plan import Build, LaunchOutcome, Plan
from apportion.runtime.stream import Stream
from apportion.runtime.visit import Launched, Seen, Visit
from apportion.settings import cache_folder, replace_file

_TIMES = 3
"How often a device is measured, where there is time for it."
_MEASURED_AS = 5
"Changes when calibrating changes, so that what was measured otherwise is not believed."


class OpenCLBackend(Backend):
    """Every OpenCL device of this machine.

    Args:
        drivers: which drivers are loaded.
        limits: what a launch may take before its worker is stopped.
    """

    def __init__(self, drivers: DriverOptions = DEFAULT_DRIVERS, limits: Limits | None = None) -> None:
        self.worker = VisitingWorker(drivers, limits)
        self._usual = drivers == DEFAULT_DRIVERS
        self._unmeasured: set[str] = set()
        "Devices that could not be calibrated; once is enough."

    @classmethod
    def open(cls, place: str, drivers: DriverOptions, limits: Limits | None) -> Self:
        """The devices of these drivers."""
        return cls(drivers, limits)

    def begin(self) -> None:
        """Start the worker."""
        self.worker.begin()

    def devices(self) -> list[DeviceInfo]:
        """Every device that the drivers offer, with its calibration where one is kept."""
        found = [kept_calibration(info) for info in self.worker.devices()]
        if self._usual:
            keep_devices(found)
        return found

    def build(self, build: Build, devices: Sequence[str]) -> dict[str, int]:
        """Compile for these devices."""
        return self.worker.build(build, list(devices))

    def allocate(self, nbytes: int) -> Region:
        """Memory that this process and the worker share."""
        return self.worker.region(nbytes)

    def launch(self, plan: Plan) -> LaunchOutcome:
        """Run a plan in the worker."""
        return self.worker.run(plan)

    def calibrate(self, devices: Sequence[str] | None = None) -> list[DeviceInfo]:
        """Measure devices, each the median of several times, and keep the result in the cache."""
        found = []
        for info in self.worker.devices():
            if (devices is not None and info.id not in devices) or info.id in self._unmeasured:
                continue
            try:
                found.append(calibrated(info, self.worker.calibrate, self.worker.limits.calibration_seconds))
            except JobError as error:  # a machine that is too busy, or a driver's fault: launches need none
                warnings.warn(f"The speed of {info.id} stays unknown: {error}", RuntimeWarning, stacklevel=2)
                self._unmeasured.add(info.id)
                found.append(info)
        self.devices()  # keeps what was measured with what was found
        return found

    def measure(
        self, visit: Visit, seconds: float, report: Callable[[tuple[str, Launched]], None] | None = None
    ) -> list[Seen]:
        """Measure a visit in the worker."""
        return self.worker.visit(visit, seconds, report)

    def confinement(self) -> Confinement:
        """What confines the worker."""
        return self.worker.confinement

    def printed(self) -> str:
        """What kernels printed in the worker."""
        return self.worker.printed()

    def stream(self) -> Stream:
        """A stream to the worker."""
        return WorkerStream(self.worker)

    def close(self) -> None:
        """End the worker; the next request would start another."""
        self.worker.close()


def kept_calibration(info: DeviceInfo) -> DeviceInfo:
    """A device with its calibration where one is kept."""
    return dataclasses.replace(info, calibration=_kept(info))


def calibrated(info: DeviceInfo, measure: Callable[[str, float], Calibration], seconds: float) -> DeviceInfo:
    """A device as it is measured now, the median of as many times as there is time for; the result is kept.

    Args:
        measure: a device's calibration, which ends soon after so many seconds.
        seconds: for all of them.
    """
    until = time.monotonic() + seconds
    found = [measure(info.id, seconds)]
    while len(found) < _TIMES and (left := until - time.monotonic()) > 0:
        found.append(measure(info.id, left))
    calibration = middle_of(found)
    replace_file(_calibration_file(info), json.dumps(dataclasses.asdict(calibration)))
    return dataclasses.replace(info, calibration=calibration)


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
