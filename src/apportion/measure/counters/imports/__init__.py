"""Readers of other tools' files: each turns one file into rows of a counter table, all of it or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from apportion.data.counter_table import CounterTable, Row, System
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.measure.counters import importers
from apportion.measure.counters.imports.naming import ImportOptions, NameMap
from apportion.measure.counters.imports.ncu import REPORT
from apportion.measure.counters.imports.perf import is_script, is_table
from apportion.settings import load

_LOOKED_AT = 1 << 16


def import_files(paths: Sequence[Path], options: ImportOptions, format: str = "auto") -> CounterTable:
    """One table of several files; files about the same run are repeats of it.

    Raises:
        UnreadableFile: a file is not there.
        MalformedInput: a file is not what it should be; the message names its line, and nothing is imported.
        InvalidSetting: there is nothing in them.
    """
    rows: list[Row] = []
    taken: dict[tuple[str, str], int] = {}
    for path in paths:
        read = importers.load(format_of(path) if format == "auto" else format)
        rows += numbered_after(taken, read(path, options))
    if not rows:
        raise InvalidSetting("There is nothing to import: give files")
    systems = {row.system for row in rows if row.system}
    return CounterTable.of(rows, [System(name) for name in sorted(systems)])


def format_of(path: Path) -> str:
    """Which tool wrote a file, by what it holds."""
    if path.is_dir() or path.name in ("experiment.xml", "meta.db"):
        return "hpctoolkit"
    if path.suffix == REPORT:
        return "ncu"
    try:
        with path.open("rb") as file:
            start = file.read(_LOOKED_AT).decode("utf-8", "replace")
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    if "<HPCToolkitExperiment" in start:
        return "hpctoolkit"
    if start.startswith("__rec="):
        return "caliper"
    if '"counter-value"' in start:
        return "perf"
    if '"Kernel Name"' in start:
        return "ncu"
    if start.lstrip().startswith("{"):
        return "perf" if '"metric-value"' in start else "papi"
    if is_table(start):
        return "perf"
    return "perf-script" if is_script(start) else "csv"


def read_map(path: Path | None) -> NameMap:
    """The mapping in a file of TOML; an empty one where there is no file."""
    return NameMap() if path is None else load(NameMap, path)


def numbered_after(taken: dict[tuple[str, str], int], rows: Sequence[Row]) -> list[Row]:
    """Rows whose repeats follow those of the same run on the same system that were there before.

    Args:
        taken: run and system → how many repeats there are; the rows' own are added to it.
    """
    before = dict(taken)
    found = []
    for row in rows:
        repeat = row.repeat + before.get((row.run, row.system), 0)
        taken[row.run, row.system] = max(taken.get((row.run, row.system), 0), repeat + 1)
        found.append(row._replace(repeat=repeat))
    return found


def add_to(table: CounterTable, new: CounterTable) -> CounterTable:
    """A table with what was imported later: more executions of a run that it has are more repeats of it."""
    ends = table.frame.group_by("run", "system").agg(pl.col("repeat").max() + 1)
    taken = {(run, system): int(end) for run, system, end in ends.iter_rows()}
    rows = [Row(*row) for row in new.frame.iter_rows()]
    return table.joined(CounterTable.of(numbered_after(taken, rows), new.systems.values()))


__all__ = ["ImportOptions", "NameMap", "add_to", "format_of", "import_files", "read_map"]
