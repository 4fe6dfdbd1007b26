"""Hardware: describe it, run kernels on it, measure them, share one kernel between several devices."""

from apportion.registry import Registry

backends = Registry(
    "backend",
    {
        "opencl": "apportion.runtime.opencl.backend:OpenCLBackend",
        "opencl-direct": "apportion.runtime.opencl.direct:DirectOpenCLBackend",
        "replay": "apportion.runtime.replay:ReplayBackend",
    },
    extras={"opencl": "opencl", "opencl-direct": "opencl"},
)
"Programming interfaces to devices, by name."
