"""Our own table of jobs: CSV or Parquet, a row for each job in order of arrival."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.trace import (
    PREDICTED,
    SECONDS,
    SIGMA,
    Codes,
    Floats,
    JobTrace,
    codes_of,
    numbers_of,
    read_table,
    whole_numbers_of,
)


def read(request: TraceRequest) -> JobTrace:
    """Read `job`, `arrival_s`, `seconds:NAME` for each system, and where they are there `width`, `class`,
    `user`, `limit_s`, `weight`, `system` (the user's choice), `steps`, `speed:NAME`, `predicted:NAME`,
    `sigma:NAME`. An empty `seconds:NAME` says that the job cannot run there."""
    path = request.file()
    table = read_table(path)
    for name in ("job", "arrival_s"):
        if name not in table.columns:
            raise MalformedInput(f"a table of jobs has a column {name}; this one has "
                                 f"{', '.join(table.columns)}", file=str(path))  # fmt: skip
    names = [system.name for system in request.systems]
    there = [column.removeprefix(SECONDS) for column in table.columns if column.startswith(SECONDS)]
    for name in names:
        if name not in there:
            raise UnknownName("system in the trace", name, there)

    def matrix(prefix: str, empty: float) -> Floats | None:
        if not any(f"{prefix}{name}" in table.columns for name in names):
            return None
        missing = np.full(len(table), empty)
        columns = [
            numbers_of(table, f"{prefix}{name}", path, empty=empty)
            if f"{prefix}{name}" in table.columns
            else missing
            for name in names
        ]
        return np.ascontiguousarray(np.stack(columns, axis=1))

    def optional(column: str, empty: float) -> Floats | None:
        return numbers_of(table, column, path, empty=empty) if column in table.columns else None

    seconds = matrix(SECONDS, np.inf)
    assert seconds is not None
    if np.isnan(seconds).any() or (seconds <= 0).any():
        row = int((np.isnan(seconds) | (seconds <= 0)).any(axis=1).argmax())
        raise MalformedInput(
            "a time must be positive; leave the cell empty where the job cannot run",
            file=str(path),
            line=row + 2,
        )
    arrival = numbers_of(table, "arrival_s", path)
    _in_order(arrival, str(path))
    program, programs = codes_of(
        table["class"].to_list() if "class" in table.columns else ["job"] * len(table)
    )
    user: Codes | None = None
    users: tuple[str, ...] = ()
    if "user" in table.columns:
        user, users = codes_of(table["user"].to_list())
    width = (
        whole_numbers_of(table, "width", path) if "width" in table.columns else np.ones(len(table), np.int64)
    )
    jobs: Any = table["job"].cast(str).to_numpy()
    return JobTrace(
        request.systems, jobs, arrival, width, seconds, program, programs, user, users,
        limit=optional("limit_s", np.inf), weight=optional("weight", 1.0),
        chosen=_chosen(table["system"].to_list(), names, str(path)) if "system" in table.columns else None,
        steps=whole_numbers_of(table, "steps", path) if "steps" in table.columns else None,
        speed=matrix("speed:", 0.0), predicted=matrix(PREDICTED, np.nan), sigma=matrix(SIGMA, 0.0),
    )  # fmt: skip


def _in_order(arrival: Floats, file: str) -> None:
    for wrong, complaint in (
        (arrival < 0, "a job arrives before time 0"),
        (np.concatenate(([False], np.diff(arrival) < 0)), "time runs backwards: sort the jobs by arrival"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise MalformedInput(f"arrival_s: {arrival[row]:g}: {complaint}", file=file, line=row + 2)


def _chosen(said: list[str | None], names: list[str], file: str) -> Codes:
    code = {name: number for number, name in enumerate(names)}
    chosen = np.full(len(said), -1, np.int32)
    for row, name in enumerate(said):
        if name in (None, ""):
            continue
        if name not in code:
            raise InvalidSetting(f"{file}:{row + 2}: the user chose {name!r}, which is none of the systems: "
                                 f"{', '.join(names)}")  # fmt: skip
        chosen[row] = code[name]
    return chosen
