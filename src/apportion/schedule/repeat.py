"""What a simulation was asked, so that whoever reads its numbers can have it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from apportion.schedule.problem import ScheduleSettings
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.simulate import RUN_TO_END
from apportion.schedule.trace import SystemSlots


@dataclass(frozen=True)
class DrawnJobs:
    """How jobs were drawn."""

    jobs: int
    load: float
    cycles: bool
    largest_width: int


@dataclass(frozen=True)
class RepeatedRun:
    """Files and settings of a simulation, under the names of the options of `apportion schedule simulate`."""

    apportion: str
    "The version that answered."
    format: str
    trace: str | None
    "A path; the name of the request's field where a service was sent the file. So with the next two."
    throughputs: str | None
    times: str | None
    systems: list[str]
    drawn: DrawnJobs | None
    "None where the jobs are those of a file."
    predictions: str | None
    anchor: str | None
    sigma: float | None
    execution: str
    trim: float
    settings: ScheduleSettings


def repeated_run(
    request: TraceRequest,
    systems: Sequence[SystemSlots],
    *,
    format: str,
    settings: ScheduleSettings,
    predictions: str | None = None,
    anchor: str | None = None,
    sigma: float | None = None,
    execution: str = RUN_TO_END,
    trim: float = 0.0,
) -> RepeatedRun:
    """What a simulation was asked.

    Args:
        request: what the reader of jobs was asked.
        systems: those of the trace, which a file may name.
    """
    trace, throughputs, times = (
        None if path is None else str(path) for path in (request.trace, request.throughputs, request.times)
    )
    drawn = None
    if trace is None:
        drawn = DrawnJobs(request.jobs, request.load, request.cycles, request.largest_width)
    return RepeatedRun(
        version("apportion"), format, trace, throughputs, times, [one.written for one in systems], drawn,
        predictions, anchor, sigma, execution, trim, settings,
    )  # fmt: skip
