"""Readers of traces: a function for each form, from a file to a `JobTrace`."""

from __future__ import annotations

from apportion.registry import Registry

readers = Registry(
    "trace format",
    {
        "table": "apportion.schedule.readers.table:read",
        "gavel": "apportion.schedule.readers.gavel:read",
        "swf": "apportion.schedule.readers.swf:read",
        "sacct": "apportion.schedule.readers.sacct:read",
        "measured": "apportion.schedule.readers.measured_jobs:read",
        "synthetic": "apportion.schedule.readers.synthetic:read",
    },
)
"Forms of traces: name → `read(source: TraceSource) -> JobTrace`."

__all__ = ["readers"]
