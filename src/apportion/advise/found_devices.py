"""The devices of this machine that kernels can run on."""

from __future__ import annotations

from apportion.runtime.backend import open_backend, with_speeds
from apportion.runtime.base import DeviceInfo
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions


def devices(*, calibrate: bool = False, drivers: DriverOptions = DEFAULT_DRIVERS) -> tuple[DeviceInfo, ...]:
    """Every OpenCL device, as its driver describes it; possibly none.

    Args:
        calibrate: also measure the speed of each device that was never measured, which takes some seconds;
            the results are kept for later.
        drivers: how the drivers are started.
    """
    with open_backend(drivers=drivers) as backend:
        return tuple(with_speeds(backend) if calibrate else backend.devices())
