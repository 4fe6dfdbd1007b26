"""The learned policy: what a launch will take on each device, by the shipped model that fits the devices.

Where none fits, the forecast comes from the devices' calibrated speeds and what the kernel is made of, with
an uncertainty that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apportion.advise import launch_times as timing
from apportion.coexecution.forecast import Enquiry, Forecast, from_speeds
from apportion.coexecution.sharing import Together
from apportion.errors import ApportionError
from apportion.runtime.base import DeviceInfo

_LEAST_KERNELS = 100
"What a model must have learned from: one that saw seven was far worse than calibrated speeds."


def learned(enquiry: Enquiry, devices: Sequence[DeviceInfo]) -> Forecast:
    """What each device is expected to take: a `Predictor` for `Together`."""
    name = fitting_model(devices)
    if name is not None:
        try:
            return timing.forecast_of(enquiry, devices, name)
        except ApportionError:  # a kernel that the model cannot read can be run all the same
            pass
    return from_speeds(enquiry, devices)


def fitting_model(devices: Sequence[DeviceInfo]) -> str | None:
    """The shipped model that learned from devices of these kinds, and says from which; None where none did.

    It knows how a CPU and a GPU differ; two CPUs differ in what calibrating measures better.
    """
    kinds = {device.kind for device in devices}
    for name in timing.models():
        model = timing.timing_model(name)
        if model.about.get("kernels", _LEAST_KERNELS) < _LEAST_KERNELS:
            continue
        known = {device.device: device.name for device in model.devices}
        if len(kinds) > 1 and kinds <= {kind for kind, learned_from in known.items() if learned_from}:
            return name
    return None


def together(*arguments: Any, **options: Any) -> Together:
    """One kernel on several devices at once, its first launch split by the learned models.

    See `apportion.coexecution.sharing.Together` for the arguments.
    """
    return Together(*arguments, **{"predictor": learned, **options})
