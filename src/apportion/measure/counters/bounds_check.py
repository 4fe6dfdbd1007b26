"""A launch under bounds checks: every access is looked at before it is made, in a process of its own."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from apportion.errors import (
    ApportionError,
    DeadlineExceeded,
    InvalidSetting,
    LaunchFailed,
    LimitExceeded,
    MissingPackage,
    WorkerCrashed,
)
from apportion.measure.counters.kernels import CountLimits, job_of, profile_job
from apportion.program.source import Source
from apportion.runtime.arguments import Arguments

SOME_GROUPS = 16
"Work-groups that are checked where nobody asks for more: the first, the last, and those between."
_SOME = CountLimits(seconds=10.0, instructions=100_000_000)
_ALL = CountLimits(seconds=600.0, instructions=40_000_000_000)


@dataclass(frozen=True)
class Checked:
    """What a check looked at."""

    groups: int
    "Work-groups that were run under checks."
    of: int
    "Work-groups of the launch."
    failure: str = ""
    "Why nothing was checked, where nothing was."

    def __str__(self) -> str:
        if self.failure:
            return f"Bounds were not checked: {self.failure}"
        some = "every work-group" if self.groups == self.of else f"{self.groups} of {self.of} work-groups"
        return f"Bounds checked in {some}: no access outside of arrays, local memory and constants"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def check_launch(source: Source, kernel: str, arguments: Arguments, *, whole: bool) -> Checked:
    """Run a launch, or some of its work-groups, with a guard before each access.

    Global, constant and local memory are checked; of private memory only that it is the work-item's own.

    Args:
        whole: every work-group; what then cannot be checked is an error.

    Raises:
        OutOfBoundsRead, OutOfBoundsWrite: an access outside; with its line, its index and the work-item.
        InvalidSetting, JobError: it cannot be checked, and `whole` is asked for.
    """
    span = arguments.case.span
    total = math.prod(span.groups)
    groups = total if whole else min(total, SOME_GROUPS)
    try:
        profile_job(
            job_of(
                source, kernel, tuple(arguments.values.values()), span, groups=groups,
                limits=_ALL if whole else _SOME, lines=True,
            )
        )  # fmt: skip
    except LaunchFailed:
        raise
    except (InvalidSetting, MissingPackage, LimitExceeded, DeadlineExceeded, WorkerCrashed) as error:
        if whole:
            raise
        return Checked(0, total, _first_sentence(error))
    return Checked(groups, total)


def _first_sentence(error: ApportionError) -> str:
    return str(error).splitlines()[0].rstrip(".")
