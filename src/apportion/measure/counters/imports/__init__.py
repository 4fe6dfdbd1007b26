"""Readers of other tools' files: each turns one file into rows of a counter table, all of it or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apportion.data.counter_table import CounterTable, Row, System
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.measure.counters import importers
from apportion.measure.counters.imports.naming import ImportOptions, NameMap
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
    for path in paths:
        read = importers.load(format_of(path) if format == "auto" else format)
        rows += read(path, options)
    if not rows:
        raise InvalidSetting("There is nothing to import: give files")
    systems = {row.system for row in rows if row.system}
    return CounterTable.of(_numbered(rows), [System(name) for name in sorted(systems)])


def format_of(path: Path) -> str:
    """Which tool wrote a file, by what it holds."""
    if path.is_dir() or path.name in ("experiment.xml", "meta.db"):
        return "hpctoolkit"
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
        return "papi"
    return "csv"


def read_map(path: Path | None) -> NameMap:
    """The mapping in a file of TOML; an empty one where there is no file."""
    return NameMap() if path is None else load(NameMap, path)


def _numbered(rows: list[Row]) -> list[Row]:
    """Executions of one run that lie in several files, as repeats of it."""
    taken: dict[tuple[str, str, str, str], set[int]] = {}
    found = []
    for row in rows:
        repeats = taken.setdefault((row.run, row.system, row.counter, row.source), set())
        repeat = row.repeat
        while repeat in repeats:
            repeat += 1
        repeats.add(repeat)
        found.append(row._replace(repeat=repeat))
    return found


__all__ = ["ImportOptions", "NameMap", "format_of", "import_files", "read_map"]
