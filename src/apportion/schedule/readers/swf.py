"""SWF, the Parallel Workloads Archive's form: lines of 18 numbers, of which -1 is unknown."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.schedule.readers.ratios import read_times, times_elsewhere
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.trace import Floats, JobTrace, SystemSlots, codes_of

FIELDS = 18
JOB, SUBMIT, WAIT, RUN, USED, ASKED, LIMIT, USER, EXECUTABLE, BEFORE = 0, 1, 2, 3, 4, 7, 8, 11, 13, 16
"Columns, from 0."


def read(request: TraceRequest) -> JobTrace:
    """Read jobs of one machine. With several systems, the machine is the first of them, and times on the
    others come from the ratios of `--times`. Without systems, the header's MaxProcs gives the size of one."""
    path = request.file()
    rows, header = _rows_of(path)
    systems = request.systems or (_machine(header, path),)
    _check(rows, path)
    width = np.where(rows[:, ASKED] > 0, rows[:, ASKED], rows[:, USED])
    kept = (rows[:, RUN] > 0) & (width > 0)
    notes = []
    if not kept.all():
        notes.append(f"{int((~kept).sum())} jobs without run time or processors are left out")
    if not kept.any():
        raise MalformedInput("no job has a run time and processors", file=str(path))
    if (rows[:, BEFORE] > 0).any():
        notes.append("that some jobs waited for others (field 17) is not simulated: arrivals are as recorded")
    rows, width = rows[kept], width[kept]
    program, programs = codes_of([_program(line) for line in rows])
    user, users = codes_of([f"{line[USER]:.0f}" for line in rows])
    seconds: Floats = np.ascontiguousarray(rows[:, RUN][:, None])
    if len(systems) > 1:
        seconds = times_elsewhere(rows[:, RUN], program, read_times(request.times, systems), known_on=0,
                                  seed=request.seed, names=programs)  # fmt: skip
    names: Any = rows[:, JOB].astype(np.int64)
    limit = np.where(rows[:, LIMIT] > 0, rows[:, LIMIT], np.inf)
    return JobTrace(
        systems, names, rows[:, SUBMIT] - rows[0, SUBMIT], width.astype(np.int64), seconds, program, programs,
        user, users, limit=limit if np.isfinite(limit).any() else None, notes=tuple(notes),
    )  # fmt: skip


def _rows_of(path: Path) -> tuple[Floats, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    rows, header = [], []
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(";"):
            header.append(line)
            continue
        fields = line.split()
        if not fields:
            continue
        if len(fields) != FIELDS:
            raise MalformedInput(
                f"a line of SWF has {FIELDS} numbers, not {len(fields)}", file=str(path), line=number
            )
        try:
            values = [float(field) for field in fields]
        except ValueError:
            wrong = next(field for field in fields if not _is_number(field))
            raise MalformedInput(f"{wrong!r} is no number", file=str(path), line=number) from None
        if not all(map(math.isfinite, values)):
            raise MalformedInput("a line of SWF has finite numbers only", file=str(path), line=number)
        if values[SUBMIT] < 0:
            raise MalformedInput(f"job {fields[0]} was submitted at {fields[1]}, before time 0",
                                 file=str(path), line=number)  # fmt: skip
        if values[WAIT] < -1 or values[RUN] < -1:
            raise MalformedInput(f"job {fields[0]} has a negative time: it starts before it was submitted or "
                                 "ends before it started", file=str(path), line=number)  # fmt: skip
        rows.append(values)
    if not rows:
        raise MalformedInput("no line is a job", file=str(path))
    return np.array(rows), "\n".join(header)


def _check(rows: Floats, path: Path) -> None:
    names, counts = np.unique(rows[:, JOB], return_counts=True)
    if (counts > 1).any():
        raise MalformedInput(f"two jobs have the number {names[counts > 1][0]:.0f}", file=str(path))
    back = np.flatnonzero(np.diff(rows[:, SUBMIT]) < 0)
    if len(back):
        raise MalformedInput(f"time runs backwards at job {rows[back[0] + 1, JOB]:.0f}: sort the jobs by "
                             "submission", file=str(path))  # fmt: skip
    before = {job: earlier for job, earlier in zip(rows[:, JOB], rows[:, BEFORE], strict=True) if earlier > 0}
    done: set[float] = set()
    for job in before:
        path_there = [job]
        while (job := before.get(job, -1)) > 0 and job not in done:
            if job in path_there:
                around = " → ".join(f"{number:.0f}" for number in [*path_there[path_there.index(job) :], job])
                raise MalformedInput(
                    f"jobs wait for each other in a circle: {around} (field 17)", file=str(path)
                )
            path_there.append(job)
        done.update(path_there)


def _machine(header: str, path: Path) -> SystemSlots:
    for field in ("MaxProcs", "MaxNodes"):
        if found := re.search(rf"{field}:\s*(\d+)", header):
            return SystemSlots("machine", int(found[1]))
    raise InvalidSetting(
        f"The header of {path} says neither MaxProcs nor MaxNodes. Give --systems machine=PROCESSORS"
    )


def _program(row: Floats) -> str:
    return f"executable {row[EXECUTABLE]:.0f}" if row[EXECUTABLE] > 0 else f"user {row[USER]:.0f}"


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
