"""Hardware: describe it, run kernels on it, measure them, share one kernel between several devices."""

from apportion.registry import Registry

backends = Registry(
    "backend",
    {
        "opencl": "apportion.runtime.opencl.backend:OpenCLBackend",
        "replay": "apportion.runtime.replay:ReplayBackend",
    },
    extras={"opencl": "opencl"},
)
"Programming interfaces to devices, by name."
