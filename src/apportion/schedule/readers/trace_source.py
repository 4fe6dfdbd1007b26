"""Where a trace comes from, with all that a reader may need to know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InvalidSetting
from apportion.schedule.trace import SystemSlots


@dataclass(frozen=True)
class TraceRequest:
    """What is asked of a reader. Each reader uses what it needs."""

    systems: tuple[SystemSlots, ...]
    trace: Path | None = None
    throughputs: Path | None = None
    "Gavel: steps per second of each type of job on each system."

    times: Path | None = None
    "SWF, sacct, measured: programs and their times on each system, from which jobs take their ratios."

    seed: int = 0
    jobs: int = 1000
    "Synthetic and measured: how many jobs to draw."

    load: float = 0.85
    "Synthetic and measured: offered work over what the slots can do; 0 has all jobs arrive at time 0."

    cycles: bool = False
    "Synthetic and measured: busier days than nights, and weekdays than weekends."

    largest_width: int = 1
    "Synthetic and measured: widths are drawn from 1 to this."

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InvalidSetting(f"A trace needs one job at least, not {self.jobs}")
        if not 0 <= self.load < 100:
            raise InvalidSetting(f"The offered load must lie between 0 and 100, not {self.load}")
        if self.largest_width < 1:
            raise InvalidSetting(f"Widths are 1 or more, so the largest cannot be {self.largest_width}")

    def file(self) -> Path:
        """The trace's file.

        Raises:
            InvalidSetting: none was given.
        """
        if self.trace is None:
            raise InvalidSetting("This format reads a file: name it with --trace")
        return self.trace
