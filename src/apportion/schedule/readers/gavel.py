"""Gavel's traces: jobs as types and steps, whose speeds stand in a table of measured throughputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.trace import JobTrace, codes_of, numbers_of, read_table, whole_numbers_of

Speeds = dict[tuple[str, int, str], float]


def read(request: TraceRequest) -> JobTrace:
    """Read `job_id`, `job_type`, `scale_factor`, `total_steps`, `priority_weight`, `arrival_s`; a job's
    time on a system is its steps over the steps per second there. Speed 0, or none in the table: it cannot
    run."""
    path = request.file()
    if request.throughputs is None:
        raise InvalidSetting("Gavel's traces need the table of speeds: name it with --throughputs")
    table = read_table(path)
    needed = ("job_id", "job_type", "scale_factor", "total_steps", "arrival_s")
    _columns(table.columns, needed, path)
    speeds = read_speeds(request.throughputs)
    known = sorted({system for _, _, system in speeds})
    for system in request.systems:
        if system.name not in known:
            raise UnknownName("system in the table of speeds", system.name, known)
    types = [str(name) for name in table["job_type"].to_list()]
    types_known = {name for name, _, _ in speeds}
    for row, name in enumerate(types):
        if name not in types_known:
            raise MalformedInput(
                f"job_type: {name!r} is not in {request.throughputs}", file=str(path), line=row + 2
            )
    width = whole_numbers_of(table, "scale_factor", path)
    steps = whole_numbers_of(table, "total_steps", path)
    arrival = numbers_of(table, "arrival_s", path)
    for wrong, complaint in (
        (steps < 1, "total_steps: a job has one step at least"),
        (width < 1, "scale_factor: a job needs one slot at least"),
        (~(arrival >= 0), "arrival_s: a job arrives before time 0"),
        (np.concatenate(([False], np.diff(arrival) < 0)), "arrival_s: time runs backwards: sort by arrival"),
    ):
        if wrong.any():
            raise MalformedInput(complaint, file=str(path), line=int(wrong.argmax()) + 2)
    speed = np.array(
        [
            [speeds.get((name, int(count), system.name), 0.0) for system in request.systems]
            for name, count in zip(types, width, strict=True)
        ]
    )
    with np.errstate(divide="ignore"):
        seconds = steps[:, None] / speed
    program, programs = codes_of(types)
    weight = numbers_of(table, "priority_weight", path) if "priority_weight" in table.columns else None
    jobs: Any = table["job_id"].cast(str).to_numpy()
    return JobTrace(request.systems, jobs, arrival, width, seconds, program, programs,
                    weight=weight, steps=steps, speed=speed)  # fmt: skip


def read_speeds(path: Path) -> Speeds:
    """Steps per second by job type, number of slots and system; of jobs packed on one server."""
    table = read_table(path)
    _columns(table.columns, ("job_type", "scale_factor", "worker_type", "steps_per_s"), path)
    values = numbers_of(table, "steps_per_s", path)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise MalformedInput(f"steps_per_s: {values[row]:g} is no speed; 0 says that the job cannot run",
                             file=str(path), line=row + 2)  # fmt: skip
    counts = whole_numbers_of(table, "scale_factor", path)
    placed = table["placement"].to_list() if "placement" in table.columns else ["packed"] * len(table)
    return {
        (str(name), int(count), str(system)): float(value)
        for name, count, system, placement, value in zip(
            table["job_type"].to_list(), counts, table["worker_type"].to_list(), placed, values, strict=True
        )
        if placement == "packed"
    }


def _columns(there: list[str], needed: tuple[str, ...], path: Path) -> None:
    missing = [name for name in needed if name not in there]
    if missing:
        raise MalformedInput(f"the columns {', '.join(missing)} are missing", file=str(path))
