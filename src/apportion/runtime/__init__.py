"""Hardware: describe it, run kernels on it, measure them, share one kernel between several devices."""

from apportion.registry import Registry

devices = Registry(
    "device",
    {
        "opencl": "apportion.runtime.opencl.devices:OpenCLDevice",
        "recorded": "apportion.runtime.replay:RecordedDevice",
    },
    extras={"opencl": "opencl"},
)
"Kinds of devices, by name."
