"""The devices of this machine that kernels can run on."""

from __future__ import annotations

from apportion.runtime.base import DeviceInfo
from apportion.runtime.opencl.devices import described, with_speeds
from apportion.runtime.opencl.platforms import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.opencl.worker import Worker


def devices(*, calibrate: bool = False, drivers: DriverOptions = DEFAULT_DRIVERS) -> tuple[DeviceInfo, ...]:
    """Every OpenCL device, as its driver describes it; possibly none.

    Args:
        calibrate: also measure the speed of each device that was never measured, which takes some seconds;
            the results are kept for later.
        drivers: how the drivers are started.
    """
    with Worker(drivers) as worker:
        return tuple(with_speeds(worker) if calibrate else described(worker))
