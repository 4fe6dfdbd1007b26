"""Counters: what programs and kernels do, counted by whatever this machine allows, or read from files."""

from apportion.registry import Registry

sources = Registry(
    "counter source",
    {
        "proc": "apportion.counters.watched:ProcSource",
        "software": "apportion.counters.watched:SoftwareSource",
        "perf": "apportion.counters.watched:PerfSource",
        "tracepoints": "apportion.counters.watched:TracepointSource",
        "nvml": "apportion.counters.gpu:NvmlSource",
        "trace": "apportion.counters.traced:TraceSource",
        "qemu": "apportion.counters.emulated:QemuSource",
        "callgrind": "apportion.counters.callgrind:CallgrindSource",
        "step-sampled": "apportion.counters.traced:SampledStepSource",
        "step": "apportion.counters.traced:StepSource",
        "static": "apportion.counters.static:StaticSource",
        "ncu": "apportion.counters.gpu:NsightComputeSource",
    },
)
"What can count a command; where several can, the first is preferred."

importers = Registry(
    "format of counters",
    {
        "perf": "apportion.counters.imports.perf:read",
        "papi": "apportion.counters.imports.papi:read",
        "caliper": "apportion.counters.imports.caliper:read",
        "hpctoolkit": "apportion.counters.imports.hpctoolkit:read",
        "ncu": "apportion.counters.imports.ncu:read",
        "csv": "apportion.counters.imports.plain:read",
    },
)
"Files of other tools: `read(path, options) -> list[Row]`."
