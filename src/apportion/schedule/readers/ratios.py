"""Times on other systems, for sources that know one system: ratios of measured programs, drawn by program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.schedule.trace import SECONDS, Codes, Floats, SystemSlots, numbers_of, read_table


@dataclass(frozen=True, eq=False)
class MeasuredTimes:
    """Programs and what a run of each took on several systems."""

    programs: tuple[str, ...]
    seconds: Floats  # (P, S); infinite where it cannot run

    def __post_init__(self) -> None:
        if len(self.programs) != len(self.seconds) or not len(self.programs):
            raise InvalidSetting("A table of times needs one row at least, each with its program")
        if np.isnan(self.seconds).any() or (self.seconds <= 0).any():
            raise InvalidSetting("Measured times must be positive")
        if not np.isfinite(self.seconds).any(axis=1).all():
            row = int((~np.isfinite(self.seconds).any(axis=1)).argmax())
            raise InvalidSetting(f"The program {self.programs[row]} has no time on any of the systems")


def read_times(path: Path | None, systems: Sequence[SystemSlots]) -> MeasuredTimes:
    """A table (CSV or Parquet) with `class` and `seconds:NAME` for each system.

    Raises:
        InvalidSetting: no file was given.
        MalformedInput, UnknownName: it has no such columns.
    """
    if path is None:
        raise InvalidSetting(
            "This needs times of programs on several systems: give a table with the columns class and "
            "seconds:NAME for each system with --times"
        )
    table = read_table(path)
    if "class" not in table.columns:
        raise MalformedInput("a table of times has a column class", file=str(path))
    there = [column.removeprefix(SECONDS) for column in table.columns if column.startswith(SECONDS)]
    for system in systems:
        if system.name not in there:
            raise UnknownName("system in the table of times", system.name, there)
    seconds = np.stack(
        [numbers_of(table, f"{SECONDS}{system.name}", path, empty=np.inf) for system in systems], axis=1
    )
    if (np.isnan(seconds) | (seconds <= 0)).any():
        row = int((np.isnan(seconds) | (seconds <= 0)).any(axis=1).argmax())
        raise MalformedInput("a time must be positive; leave the cell empty where the program cannot run",
                             file=str(path), line=row + 2)  # fmt: skip
    return MeasuredTimes(tuple(str(name) for name in table["class"].to_list()), seconds)


def times_elsewhere(
    seconds: Floats,
    program: Codes,
    times: MeasuredTimes,
    *,
    known_on: int,
    seed: int,
    names: Sequence[str] = (),
) -> Floats:
    """Times on every system of jobs whose time on one is known.

    A program that the table has keeps its own ratios; any other takes those of one that is drawn, by program
    and not by job, since programs repeat.

    Args:
        seconds: (N,) on the system that is known.
        known_on: its column.
        names: of the programs, to find them in the table.
    """
    usable = np.flatnonzero(np.isfinite(times.seconds[:, known_on]))
    if not len(usable):
        raise InvalidSetting("No program of the table of times has a time on the first system")
    codes = int(program.max()) + 1
    rows = np.random.default_rng([seed, 0]).choice(usable, size=codes)
    own = {name: row for row, name in enumerate(times.programs) if row in set(usable.tolist())}
    for code, name in enumerate(names[:codes]):
        rows[code] = own.get(name, rows[code])
    ratio = times.seconds[rows] / times.seconds[rows, known_on][:, None]
    return np.asarray(seconds[:, None] * ratio[program])
