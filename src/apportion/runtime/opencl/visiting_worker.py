"""A worker that is also asked to measure: visits of one case of a workload."""

from __future__ import annotations

import os
from collections.abc import Callable

from apportion.runtime.base import DeviceInfo
from apportion.runtime.opencl.confinement import header_folders
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.visit import Launched, Seen, Visit


class VisitingWorker(Worker):
    """A worker that is also asked for visits."""

    def visit(
        self, visit: Visit, seconds: float, report: Callable[[tuple[str, Launched]], None] | None = None
    ) -> list[Seen]:
        """Do a visit, within a time.

        Args:
            report: is told every launch, with its device, as soon as it is measured.

        Raises:
            DeadlineExceeded, WorkerCrashed, LimitExceeded: the kernel, or a driver, is at fault.
        """
        self.allow(
            readable=[*header_folders(visit.plan.build.options), *_files_of(visit)],
            writable=[os.path.abspath(visit.binaries)] if visit.binaries else (),
        )
        doing = f"measuring {visit.plan.build.kernel!r} on {', '.join(visit.devices)}"
        if self._process is None:  # loading the drivers has its own time, which is longer than a visit's
            self._ask("describe", seconds=0.0, doing="listing devices", answer=list[DeviceInfo])
        seen: list[Seen] = self._ask(
            "visit", visit, seconds=seconds, doing=doing, answer=list[Seen],
            seen=tuple[str, Launched], report=report or (lambda _: None),
        )  # fmt: skip
        if any(one.failure.startswith("LaunchFailed") for one in seen):
            self._stop()  # a GPU's context is of no more use after some errors, and does not say so
        return seen


def _files_of(visit: Visit) -> list[str]:
    """The files that arrays of a visit are read from; nothing else in their folders is shown to a kernel."""
    named = (word.fill.partition(":") for word in visit.arrays.values())
    return sorted({os.path.abspath(path) for kind, _, path in named if kind == "file"})
