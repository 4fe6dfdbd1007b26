"""Jobs drawn with replacement from programs that were measured on every system."""

from __future__ import annotations

import numpy as np

from apportion.errors import InvalidSetting
from apportion.schedule.readers.ratios import read_times
from apportion.schedule.readers.synthetic import drawn_trace
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.trace import JobTrace


def read(request: TraceRequest) -> JobTrace:
    """Draw `jobs` runs from the table of `--times` (or `--trace`); each row is a class of its own."""
    if not request.systems:
        raise InvalidSetting("Measured jobs need systems: give --systems NAME=SLOTS …")
    times = read_times(request.times or request.trace, request.systems)
    rows = np.random.default_rng([request.seed, 1]).integers(0, len(times.programs), request.jobs)
    return drawn_trace(request, times.seconds[rows], rows.astype(np.int32), times.programs)
