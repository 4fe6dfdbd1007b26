"""Plain CSV: one value a row, or one run a row, with a mapping that says what the columns are."""

from __future__ import annotations

import csv
from pathlib import Path

from apportion.data.counter_table import Row
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.measure.counters.imports.naming import ImportOptions, first_of, joined, number_in, rows_of

SOURCE = "csv"
_OURS = ("run", "program", "kernel", "size", "system", "repeat", "counter", "value")
_MISSING = ("", "nan", "na", "n/a", "null", "none", "-")


def read(path: Path, options: ImportOptions) -> list[Row]:
    """The rows of a table; without a column `counter`, every column without another meaning is one."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return rows_of_table(csv.reader(file), str(path), options)
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    except csv.Error as error:
        raise MalformedInput(str(error), file=str(path)) from error


def rows_of_table(reader: csv._reader, file: str, options: ImportOptions) -> list[Row]:  # type: ignore[name-defined]
    """The rows of a table whose lines are read one by one.

    Args:
        file: what messages call it; its stem is the program where nothing names one.
    """
    columns = {name: name for name in _OURS}
    columns |= dict(options.mapping.columns)
    if unknown := sorted(set(columns) - set(_OURS)):
        raise InvalidSetting(f"[columns] knows {', '.join(_OURS)}, not {unknown[0]!r}")
    header = next(reader, None)
    if header is None:
        raise MalformedInput("the table is empty", file=file, line=1)
    for column in options.mapping.columns.values():
        if column not in header:
            raise MalformedInput(
                f"there is no column {column!r}; there are: {', '.join(header)}", file=file, line=1
            )
    long = columns["counter"] in header
    if long and columns["value"] not in header:
        raise MalformedInput("a table with a column of counters needs one of values", file=file, line=1)
    counters = [columns["value"]] if long else [name for name in header if name not in columns.values()]
    if not counters:
        raise MalformedInput("the table has no column of values", file=file, line=1)
    executions: dict[tuple[tuple[str, str, str, str, str], int], dict[str, tuple[float | None, str]]] = {}
    seen: dict[str, int] = {}
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise MalformedInput(
                f"{len(cells)} cells instead of {len(header)}", file=file, line=reader.line_num
            )
        entry = dict(zip(header, cells, strict=True))
        identity = _identity(entry, columns, options, file)
        repeat = _repeat(entry, columns, identity[0], seen, long, file, reader.line_num)
        values = executions.setdefault((identity, repeat), {})
        for column in counters:
            counter = entry[columns["counter"]] if long else column
            text = entry[column].strip()
            if counter in values:
                raise MalformedInput(
                    f"{counter} of {identity[0]!r}, repeat {repeat}, is there twice",
                    file=file,
                    line=reader.line_num,
                )
            missing = text.lower() in _MISSING
            value = None if missing else number_in(text, file, reader.line_num, counter)
            values[counter] = (value, "exact")
    rows: list[Row] = []
    for (identity, repeat), values in executions.items():
        rows += rows_of(values, identity, repeat, SOURCE, options.mapping)
    if not rows:
        raise MalformedInput("the table has no row", file=file, line=1)
    return rows


def _identity(
    entry: dict[str, str], columns: dict[str, str], options: ImportOptions, file: str
) -> tuple[str, str, str, str, str]:
    program = first_of(entry.get(columns["program"], ""), options.program, Path(file).stem)
    kernel = entry.get(columns["kernel"], "")
    size = first_of(entry.get(columns["size"], ""), options.size)
    system = first_of(entry.get(columns["system"], ""), options.system)
    run = first_of(entry.get(columns["run"], ""), joined((program, kernel, size)))
    return run, program, kernel, size, system


def _repeat(
    entry: dict[str, str],
    columns: dict[str, str],
    run: str,
    seen: dict[str, int],
    long: bool,
    file: str,
    line: int,
) -> int:
    """The number of the repeat: as the table says, else rows of the same run are counted."""
    text = entry.get(columns["repeat"], "")
    if text:
        value = number_in(text, file, line, "repeat")
        if value != int(value) or value < 0:
            raise MalformedInput(f"repeat is {text!r}, not 0, 1, 2 …", file=file, line=line)
        return int(value)
    if long:
        return 0
    key = f"{run}\0{entry.get(columns['system'], '')}"
    seen[key] = seen.get(key, -1) + 1
    return seen[key]
