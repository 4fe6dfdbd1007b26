"""Hardware: describe it, run kernels on it, measure them, share one kernel between several devices."""

from apportion.registry import Registry

devices = Registry(
    "device",
    {
        "opencl": "apportion.device.opencl:OpenCLDevice",
        "recorded": "apportion.device.recorded:RecordedDevice",
    },
    extras={"opencl": "opencl"},
)
"Kinds of devices, by name."
