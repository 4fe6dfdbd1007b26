"""Counters: what programs and kernels do, counted by whatever this machine allows, or read from files."""

from apportion.registry import Registry

sources = Registry(
    "counter source",
    {
        "proc": "apportion.measure.counters.watched:ProcSource",
        "software": "apportion.measure.counters.watched:SoftwareSource",
        "perf": "apportion.measure.counters.watched:PerfSource",
        "tracepoints": "apportion.measure.counters.watched:TracepointSource",
        "nvml": "apportion.measure.counters.gpu:NvmlSource",
        "trace": "apportion.measure.counters.traced:TraceSource",
        "qemu": "apportion.measure.counters.emulated:QemuSource",
        "callgrind": "apportion.measure.counters.callgrind:CallgrindSource",
        "step-sampled": "apportion.measure.counters.traced:SampledStepSource",
        "step": "apportion.measure.counters.traced:StepSource",
        "static": "apportion.measure.counters.static_mix:StaticSource",
        "ncu": "apportion.measure.counters.gpu:NsightComputeSource",
    },
)
"What can count a command; where several can, the first is preferred."

importers = Registry(
    "format of counters",
    {
        "perf": "apportion.measure.counters.imports.perf:read",
        "perf-script": "apportion.measure.counters.imports.perf:read_script",
        "papi": "apportion.measure.counters.imports.papi:read",
        "caliper": "apportion.measure.counters.imports.caliper:read",
        "hpctoolkit": "apportion.measure.counters.imports.hpctoolkit:read",
        "ncu": "apportion.measure.counters.imports.ncu:read",
        "csv": "apportion.measure.counters.imports.plain:read",
    },
)
"Files of other tools: `read(path, options) -> list[Row]`."
