"""Jobs over systems: which waits where, and what predictions of relative performance are worth there."""

from __future__ import annotations

from apportion.schedule.beliefs import Beliefs, exact, with_errors
from apportion.schedule.policies import policies
from apportion.schedule.problem import Schedule, ScheduleSettings, SchedulingProblem
from apportion.schedule.quality import ScheduleSummary
from apportion.schedule.readers import readers
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.simulate import SimulatedPolicy, simulate
from apportion.schedule.trace import JobTrace, SystemSlots, parse_systems

__all__ = [
    "Beliefs", "JobTrace", "Schedule", "ScheduleSettings", "ScheduleSummary", "SchedulingProblem",
    "SimulatedPolicy", "SystemSlots", "TraceRequest", "exact", "parse_systems", "policies", "readers",
    "simulate",
    "with_errors",
]  # fmt: skip
