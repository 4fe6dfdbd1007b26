"""Energy of a launch, by the meters of this machine that may be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from apportion.runtime.observe import energy_meters

_SECONDS = 0.4
"How long launches are repeated between two readings: NVIDIA's meter moves ten times a second."
_MOST = 200
UNREADABLE = (
    "Energy cannot be read here: this machine offers no meter, or this process may not read it "
    "(Intel's /sys/class/powercap is for root on most machines; NVIDIA's needs its driver)"
)


def energy_of(launch: Callable[[], object]) -> dict[str, Any]:
    """Joules of one launch, each meter apart, with what else ran meanwhile; or why none can be told."""
    meters = energy_meters()
    if not meters:
        return {"joules": None, "meters": {}, "launches": 0, "reason": UNREADABLE}
    before = [meter.read() for meter in meters]
    began, launches = time.perf_counter(), 0
    while launches < _MOST and (launches < 3 or time.perf_counter() - began < _SECONDS):
        launch()
        launches += 1
    each = {
        meter.name: (meter.read() - first) / launches for meter, first in zip(meters, before, strict=True)
    }
    return {"joules": sum(each.values()), "meters": each, "launches": launches, "reason": ""}
