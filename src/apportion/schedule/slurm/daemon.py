"""The daemon: every few seconds it looks at the queue, learns from jobs that ended, and renews the
placements."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from apportion.errors import InvalidSetting, JobError
from apportion.schedule.readers.sacct import FinishedJob
from apportion.schedule.slurm.cluster import (
    SlurmCommands,
    SlurmJob,
    append_history,
    ended_jobs,
    read_history,
)
from apportion.schedule.slurm.conf_folder import FOLDER
from apportion.schedule.slurm.estimates import ClassPrediction, estimates_of
from apportion.schedule.slurm.narrowed import read_narrowed, widened_at_the_end, write_narrowed
from apportion.schedule.slurm.placement import QueuePlan, plan, write_placements

LOOK_BACK = 30 * 86400.0
"Seconds of accounting that are read when the daemon starts."


@dataclass(frozen=True)
class DaemonSettings:
    """How the daemon works."""

    conf: Path
    interval: float = 10.0
    "Seconds from one look at the queue to the next."

    limits: bool = False
    "Hand in time limits for jobs that have none."

    moves: bool = True
    "Move waiting jobs that were placed here, when another partition would end them sooner."

    dry_run: bool = False
    "Change nothing: neither files nor jobs."

    def __post_init__(self) -> None:
        if not self.interval > 0:
            raise InvalidSetting(f"interval is a positive number of seconds, not {self.interval}")

    @property
    def folder(self) -> Path:
        return self.conf.resolve() / FOLDER


@dataclass
class PlacementDaemon:
    """One cluster's daemon: `look` once, or `run` until it is told to end."""

    settings: DaemonSettings
    predicted: Mapping[str, ClassPrediction]
    report: Callable[[str], None]
    history: list[FinishedJob] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _read_until: float = 0.0
    _ending: bool = False

    def __post_init__(self) -> None:
        self.commands = SlurmCommands(self.settings.conf)
        self.history = read_history(self._file)
        self._known = {job.job for job in self.history}
        self._read_until = time.time() - LOOK_BACK

    @property
    def _file(self) -> Path:
        return self.settings.folder / "history.jsonl"

    def look(self) -> QueuePlan:
        """Look at the queue once, and renew what follows from it.

        Raises:
            JobError: Slurm gives no answer.
        """
        began = time.time()
        jobs = self.commands.jobs()
        partitions = self.commands.partitions()
        new = [*self.commands.accounting(self._read_until - 60), *ended_jobs(jobs)]
        new = list({job.job: job for job in new if job.job not in self._known}.values())
        self.history += new
        if self.settings.dry_run:
            self._known |= {job.job for job in new}
        else:
            self.settings.folder.mkdir(parents=True, exist_ok=True)
            append_history(self._file, new, self._known)
        self._read_until = began
        found = plan(
            partitions, jobs, estimates_of(self.history, self.predicted), limits=self.settings.limits
        )
        if self.settings.dry_run:
            return found
        write_placements(self.settings.folder, found.placements)
        if self.settings.moves:
            self._move(found, jobs)
        return found

    def _move(self, found: QueuePlan, jobs: Sequence[SlurmJob]) -> None:
        waiting = {job.number: job.partitions for job in jobs if job.state == "PENDING"}
        lists = {number: names for number, names in read_narrowed(self.settings.folder).items()
                 if number in waiting}  # fmt: skip
        for number, where in found.moves:
            if len(waiting[number]) > len(where):
                lists[number] = waiting[number]
        write_narrowed(self.settings.folder, lists)
        for number, where in found.moves:
            try:
                self.commands.move(number, where)
                self.report(f"job {number}: moved to {','.join(where)}")
            except JobError as error:  # it has started meanwhile, or is gone
                self.report(f"job {number}: not moved: {error}")

    def run(self) -> None:
        """Look again and again, until SIGTERM or SIGINT. While Slurm gives no answer nothing changes;
        placements grow old, and jobs then go where they would without them. When the daemon ends, also by
        SIGKILL, waiting jobs may start in all partitions of their lists again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        with nullcontext() if self.settings.dry_run else widened_at_the_end(self.settings.conf):
            while not self._ending:
                began = time.monotonic()
                try:
                    self.look()
                except JobError as error:
                    self.report(f"Slurm gives no answer: {error}")
                while not self._ending and time.monotonic() - began < self.settings.interval:
                    time.sleep(min(0.1, self.settings.interval))

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._ending = True
