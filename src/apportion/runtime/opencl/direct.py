"""The backend `opencl-direct`: the OpenCL drivers in this process, so that nothing stands between.

A kernel that crashes takes the program with it, and one that does not end cannot be stopped. It is for
measuring
what protection costs, and for programs whose kernels are known.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from apportion.runtime.backend import Backend
from apportion.runtime.base import DeviceInfo, Limits
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.memory import Region
from apportion.runtime.opencl.backend import calibrated, kept_calibration
from apportion.runtime.opencl.platforms import worker_environment
from apportion.runtime.opencl.streams import DirectStream
from apportion.runtime.plan import ArrayPlace, Build, LaunchOutcome, Plan
from apportion.runtime.stream import Stream
from apportion.runtime.visit import Launched, Seen, Visit

if TYPE_CHECKING:
    from apportion.runtime.opencl.driver import Driver


class DirectOpenCLBackend(Backend):
    """Every OpenCL device of this machine, in this process. Drivers are loaded once: the first options
    hold."""

    def __init__(self, drivers: DriverOptions = DEFAULT_DRIVERS) -> None:
        os.environ.update(worker_environment(drivers))
        from apportion.runtime.opencl.driver import Driver  # here, since it loads the drivers

        self._driver: Driver = Driver()
        self._regions: dict[int, Region] = {}
        self._attached: set[int] = set()

    @classmethod
    def open(cls, place: str, drivers: DriverOptions, limits: Limits | None) -> Self:
        """The devices of these drivers; limits cannot be kept here."""
        return cls(drivers)

    def devices(self) -> list[DeviceInfo]:
        """Every device that the drivers offer, with its calibration where one is kept."""
        return [kept_calibration(info) for info in self._driver.describe()]

    def build(self, build: Build, devices: Sequence[str]) -> dict[str, int]:
        """Compile for these devices."""
        return self._driver.build(build, list(devices))

    def allocate(self, nbytes: int) -> Region:
        """Memory on page boundaries, with guards. It is kept until the backend closes."""
        region = Region(nbytes)
        self._regions[region.number] = region
        return region

    def launch(self, plan: Plan) -> LaunchOutcome:
        """Run a plan here."""
        for place in plan.arguments:
            if isinstance(place, ArrayPlace):
                self._attach(place.region)
        return self._driver.run(0, plan, lambda: None)

    def calibrate(self, devices: Sequence[str] | None = None) -> list[DeviceInfo]:
        """Measure devices, and keep the result in the cache."""
        wanted = [info for info in self._driver.describe() if devices is None or info.id in devices]
        return [calibrated(info, self._driver.calibrate, Limits().calibration_seconds) for info in wanted]

    def measure(
        self, visit: Visit, seconds: float, report: Callable[[tuple[str, Launched]], None] | None = None
    ) -> list[Seen]:
        """Measure a visit here; it is not stopped."""
        return self._driver.visit(visit, report or (lambda _: None))

    def stream(self) -> Stream:
        """A stream to the drivers."""
        return DirectStream(self._driver, self._attach)

    def close(self) -> None:
        """Let go of memory; drivers stay loaded as long as the process lives."""
        self._driver.detach(sorted(self._attached))
        self._attached.clear()
        self._regions.clear()

    def _attach(self, number: int) -> None:
        if number not in self._attached:
            region = self._regions[number]
            self._driver.attach([(number, region.nbytes)], [os.dup(region.descriptor)])
            self._attached.add(number)
