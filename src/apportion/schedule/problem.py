"""What a policy is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName
from apportion.schedule.beliefs import Beliefs
from apportion.schedule.trace import Codes, Floats, JobTrace

BACKFILL = ("none", "easy", "conservative")
RESERVE = ("predicted", "limit")


@dataclass(frozen=True)
class ScheduleSettings:
    """How schedules are simulated, beyond what the policy decides."""

    seed: int = 0

    backfill: str | None = None
    "none, easy or conservative; None leaves each policy its own."

    depth: int | None = None
    """How many waiting jobs backfilling and late binding look at; 0: all; None: 100 as is common in
    practice, and all for easy_fastest and makespan."""

    reserve: str = "predicted"
    "Whether reservations trust predicted times or the users' limits."

    requeue: bool = False
    "Whether a job killed at its limit comes back with twice the limit."

    learn: bool = True
    "careful: times of finished jobs replace what was predicted of their class."

    quantile: float = 0.5
    "careful: decides by this quantile of the predicted time."

    tie: float = 0.0
    "careful: systems whose finish is nearer than this many sigmas are equal, and the sooner start wins."

    explore: float = 0.0
    """careful: the part of all slot time, from 0 to 0.01, that may be lost to learning: a class is tried on a
    system where it has not run, and a first run there that takes twice as long as the job would elsewhere is
    started again elsewhere."""

    repeat_sigma: float = 0.03
    "careful: sigma of log2 of a run repeated, as believed before runs of the trace were repeated."

    default: str | None = None
    "The system of a job whose prediction abstains and whose user chose none; None takes turns."

    drop_short_steps: bool = False
    "Rounds: imitate Gavel, which gives up a job of several GPUs that has fewer steps left than GPUs."

    def __post_init__(self) -> None:
        if self.backfill is not None and self.backfill not in BACKFILL:
            raise UnknownName("backfilling", self.backfill, BACKFILL)
        if self.reserve not in RESERVE:
            raise UnknownName("kind of reservation", self.reserve, RESERVE)
        if self.depth is not None and self.depth < 0:
            raise InvalidSetting(f"depth counts jobs, so it cannot be {self.depth}; 0 looks at all")
        if not 0 < self.quantile < 1:
            raise InvalidSetting(f"quantile lies between 0 and 1, not {self.quantile}")
        if not 0 <= self.explore <= 0.01:
            raise InvalidSetting(f"explore lies between 0 and 0.01, not {self.explore}")
        if self.tie < 0 or self.repeat_sigma < 0:
            raise InvalidSetting("tie and repeat_sigma are 0 or more")
        if self.seed < 0:
            raise InvalidSetting(f"A seed is 0 or more, not {self.seed}")


@dataclass(frozen=True, eq=False)
class SchedulingProblem:
    """A trace, what is believed about it, and how it is simulated."""

    trace: JobTrace
    beliefs: Beliefs
    settings: ScheduleSettings = ScheduleSettings()

    def need_times(self, policy: str) -> None:
        """Refuse beliefs that are ratios, for a policy that adds times of different jobs."""
        if not self.beliefs.anchored:
            raise InvalidSetting(
                f"The policy {policy} adds times of different jobs, and relative performance has no seconds. "
                "Name the system where each class was measured with --anchor, or use fastest or max_min"
            )


@dataclass(frozen=True, eq=False)
class Schedule:
    """Where and when each job ran."""

    system: Codes  # (N,): that of its last run
    start: Floats  # (N,): when its last run began; in rounds, its first
    end: Floats  # (N,)
    ran: Floats  # (N, S): seconds on each system
    predicted: Floats  # (N,): seconds believed when it started
    killed: NDArray[np.bool_]  # (N,): ended by its limit, or given up
    fallback: NDArray[np.bool_]  # (N,): placed without a prediction
    lost_slot_seconds: float = 0.0
    explored: int = 0
    "Jobs sent to a system to learn its speed."

    head_delay: float = 0.0
    "The longest that a job at the head of a queue began after the time first reserved for it."

    policy_seconds: float = 0.0
    "CPU time of the policy alone, where it can be told from the simulator's."

    allocations: int = 0
    rounds: int = 0
    pieces: int = 0
    "Rounds: slices of jobs that ran."

    restarted: int = 0
    "Jobs that outlived what they would take elsewhere, and were started again there."

    notes: tuple[str, ...] = ()
