"""Slurm's accounting: what `sacct -X -P -o …` prints, where a partition is a system."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.schedule.readers.ratios import read_times, times_elsewhere
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.trace import Floats, JobTrace, SystemSlots, codes_of

FORMAT = (
    "JobID", "JobName", "User", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw",
    "AllocTRES", "Comment", "AdminComment",
)  # fmt: skip
"What to ask sacct for: `sacct -X -P -o` and these, with commas between them."
PROFILE = re.compile(r"profile=([\w-]+)")


@dataclass(frozen=True)
class FinishedJob:
    """A job that accounting knows the end of."""

    job: str
    program: str
    "The key of its profile, from the comment; without one the job's name."

    user: str
    partition: str
    submitted: float
    started: float
    seconds: float
    nodes: int
    limit: float
    completed: bool
    "Otherwise it failed, was cancelled or ran into its limit: `seconds` is less than it would have taken."

    placed: bool = False
    "Whether apportion chose its partition."


def read(request: TraceRequest) -> JobTrace:
    """Read jobs that completed. A job's time on its own partition is the one recorded; on another it is
    scaled by the median times of its class there, or by the ratios of `--times`; without either it cannot
    run there."""
    path = request.file()
    done = read_accounting(path)
    finished = [job for job in done if job.completed and job.seconds > 0]
    if not finished:
        raise MalformedInput("no job has completed", file=str(path))
    finished.sort(key=lambda job: (job.submitted, job.job))
    partitions = sorted({job.partition for job in finished})
    systems = request.systems or tuple(SystemSlots(name, _busiest(finished, name)) for name in partitions)
    column = {system.name: number for number, system in enumerate(systems)}
    kept = [job for job in finished if job.partition in column]
    if not kept:
        raise InvalidSetting(
            f"No job of {path} ran in a partition that is given. There are: {', '.join(partitions)}"
        )
    notes = []
    if len(kept) < len(done):
        notes.append(f"{len(done) - len(kept)} jobs that did not complete, or ran elsewhere, are left out")
    program, programs = codes_of([job.program for job in kept])
    user, users = codes_of([job.user for job in kept])
    own = np.array([column[job.partition] for job in kept], np.int32)
    taken = np.array([job.seconds for job in kept])
    seconds = _by_class(taken, own, program, len(systems))
    if request.times is not None:
        times = read_times(request.times, systems)
        for number in range(len(systems)):
            rows = own == number
            if rows.any():
                there = times_elsewhere(taken[rows], program[rows], times, known_on=number, seed=request.seed,
                                        names=programs)  # fmt: skip
                seconds[rows] = np.where(np.isfinite(seconds[rows]), seconds[rows], there)
    first = kept[0].submitted
    names: Any = np.array([job.job for job in kept])
    return JobTrace(
        systems, names, np.array([job.submitted - first for job in kept]),
        np.array([job.nodes for job in kept], np.int64), seconds, program, programs, user, users,
        limit=np.array([job.limit for job in kept]), chosen=own, notes=tuple(notes),
    )  # fmt: skip


def read_accounting(path: Path) -> list[FinishedJob]:
    """The jobs of a file that sacct printed, those that have ended.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it is not sacct's.
    """
    try:
        return finished_jobs(path.read_text(errors="replace"), str(path))
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error


def finished_jobs(text: str, file: str) -> list[FinishedJob]:
    """The jobs of what sacct printed, those that have ended."""
    lines = text.splitlines()
    columns = lines[0].split("|") if lines else []
    needed = ("JobID", "Partition", "State", "Submit", "Start", "ElapsedRaw")
    missing = [name for name in needed if name not in columns]
    if missing:
        raise MalformedInput(
            f"this is not what sacct prints: {', '.join(missing)} missing. Make it with: "
            f"sacct -X -P -o {','.join(FORMAT)}", file=file, line=1
        )  # fmt: skip
    found, seen = [], set()
    for number, cells in enumerate(csv.reader(lines[1:], delimiter="|", quoting=csv.QUOTE_NONE), 2):
        if not cells:
            continue
        if len(cells) != len(columns):
            raise MalformedInput(
                f"{len(cells)} fields where the header has {len(columns)}", file=file, line=number
            )
        row = dict(zip(columns, cells, strict=True))
        if row["Start"] in ("Unknown", "None", "") or row["State"].split()[0] in ("PENDING", "RUNNING"):
            continue
        if row["JobID"] in seen:
            raise MalformedInput(f"two jobs have the number {row['JobID']}; ask sacct without -D",
                                 file=file, line=number)  # fmt: skip
        seen.add(row["JobID"])
        found.append(_job(row, file, number))
    return found


def _job(row: dict[str, str], file: str, line: int) -> FinishedJob:
    submitted, started = (_instant(row[name], file, line) for name in ("Submit", "Start"))
    try:
        seconds = float(row["ElapsedRaw"])
    except ValueError:
        raise MalformedInput(
            f"ElapsedRaw: {row['ElapsedRaw']!r} is no number", file=file, line=line
        ) from None
    if started < submitted:
        raise MalformedInput(f"job {row['JobID']} starts before it was submitted", file=file, line=line)
    if seconds < 0 or (row.get("End", "Unknown") != "Unknown" and _instant(row["End"], file, line) < started):
        raise MalformedInput(f"job {row['JobID']} ends before it starts", file=file, line=line)
    minutes = row.get("TimelimitRaw", "")
    profile = PROFILE.search(row.get("Comment", ""))
    nodes = re.search(r"node=(\d+)", row.get("AllocTRES", ""))
    return FinishedJob(
        row["JobID"], profile[1] if profile else row.get("JobName", "job"), row.get("User", ""),
        row["Partition"],
        submitted, started, seconds, max(1, int(nodes[1])) if nodes else 1,
        60.0 * int(minutes) if minutes.isdigit() and int(minutes) > 0 else np.inf,
        row["State"].startswith("COMPLETED"), "apportion" in row.get("AdminComment", ""),
    )  # fmt: skip


def _instant(text: str, file: str, line: int) -> float:
    try:
        return (datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds()
    except (ValueError, TypeError):
        raise MalformedInput(
            f"{text!r} is no time such as 2026-11-16T10:00:00", file=file, line=line
        ) from None


def _by_class(taken: Floats, own: Any, program: Any, systems: int) -> Floats:
    """Times everywhere: medians of a class on two systems give their ratio."""
    median = np.full((int(program.max()) + 1, systems), np.inf)
    for code in range(len(median)):
        for number in range(systems):
            runs = taken[(program == code) & (own == number)]
            if len(runs):
                median[code, number] = float(np.median(runs))
    rows = np.arange(len(taken))
    seconds = taken[:, None] * median[program] / median[program, own][:, None]
    seconds[rows, own] = taken
    return np.asarray(seconds)


def _busiest(jobs: Sequence[FinishedJob], partition: str) -> int:
    """The most nodes that jobs of a partition held at once: its size, when nobody said."""
    events = sorted(
        event
        for job in jobs
        if job.partition == partition
        for event in ((job.started, job.nodes), (job.started + job.seconds, -job.nodes))
    )
    return int(max(np.cumsum([change for _, change in sorted(events)])))
