"""What `perf` counted: `perf stat -j` (an object a line), `perf stat -x,` (a table), `perf script` (samples).

Values may be words (`<not supported>`). Where one event was counted on several kinds of cores
(`cpu_core/instructions/`, `cpu_atom/instructions/`), for several processors or in intervals, counts add up.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.data.counter_table import Row
from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports.naming import ImportOptions, first_of, joined, number_in, rows_of

SOURCE = "perf-stat"
SAMPLES = "perf-record"
_TIMES = {"duration_time": 1e-9}
"Events of perf's that are times, and their unit in seconds."
_HYBRID = re.compile(r"cpu(?:_core|_atom)?/(?P<event>[^/=,]+)(?P<more>,[^/]*)?/(?P<modifier>\w*)")
_UNITS = ("", "msec", "sec", "ns", "Joules", "MHz", "GHz", "MiB", "KiB", "bytes", "C", "/sec")
_NUMBER = re.compile(r"-?[\d.]+(?:e[+-]?\d+)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"^(-?\d+),(\d+)$")
_SAMPLE = re.compile(
    r"(?P<command>\S.*?)\s+\d+(?:/\d+)?\s+(?:\[\d+\]\s+)?[\d.]+:\s+(?P<period>\d+)\s+(?P<event>\S+?):(?:\s|$)"
)


@dataclass(frozen=True)
class _EventCount:
    """One count that a line holds."""

    event: str
    text: str
    running: float
    "Percent of the time for which the event was counted; the rest is extrapolated."


def read(path: Path, options: ImportOptions) -> list[Row]:
    """The events of a file of `perf stat`, summed over intervals, processors and kinds of cores."""
    values: dict[str, tuple[float | None, str]] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        count = (
            _of_object(line, path, number) if line.lstrip().startswith("{") else _of_row(line, path, number)
        )
        if count is None:
            continue
        event = _plain(count.event)
        if count.text.startswith("<"):  # <not supported>, <not counted>
            values.setdefault(event, (None, "exact"))
            continue
        value = number_in(count.text, str(path), number, f"the value of {event}")
        # Where there are more events than counters they take turns, and perf extrapolates.
        _add(values, event, value, "exact" if count.running >= 100 else "sampled")
    if not values:
        raise MalformedInput(
            "it holds no event; write it with `perf stat -j -o FILE`", file=str(path), line=1
        )
    return _rows(values, path, options, SOURCE, "")


def read_script(path: Path, options: ImportOptions) -> list[Row]:
    """What `perf script` printed of samples: the sum of the periods of each event, one run a command."""
    commands: dict[str, dict[str, tuple[float | None, str]]] = {}
    for line in _lines(path):
        match = _SAMPLE.match(line)
        if match:  # lines between are frames of the stack
            values = commands.setdefault(match["command"], {})
            _add(values, _plain(match["event"]), float(match["period"]), "sampled")
    if not commands:
        raise MalformedInput(
            "it holds no sample with an event and its period; write it with "
            "`perf script -F comm,tid,time,period,event`",
            file=str(path), line=1,
        )  # fmt: skip
    rows: list[Row] = []
    for command, values in commands.items():
        rows += _rows(values, path, options, SAMPLES, command)
    return rows


def is_table(start: str) -> bool:
    """Whether a file begins as `perf stat -x` writes it."""
    lines = [line for line in start.splitlines()[:20] if line.strip() and not line.startswith("#")]
    return bool(lines) and all(_cells(line) is not None for line in lines[:3])


def is_script(start: str) -> bool:
    """Whether a file begins as `perf script` writes it."""
    lines = [line for line in start.splitlines()[:5] if line.strip() and not line.startswith("#")]
    return bool(lines) and _SAMPLE.match(lines[0]) is not None


def _of_object(line: str, path: Path, number: int) -> _EventCount | None:
    """A line of `perf stat -j`; None for one that holds a metric and no event."""
    try:
        entry = json.loads(line)
        if "event" not in entry and "metric-value" in entry:
            return None
        return _EventCount(
            entry["event"], str(entry["counter-value"]), float(entry.get("pcnt-running", 100.0))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedInput(
            f"not a line of `perf stat -j` ({error})", file=str(path), line=number
        ) from error


def _of_row(line: str, path: Path, number: int) -> _EventCount | None:
    """A line of `perf stat -x`; None for one that holds a metric and no event."""
    cells = _cells(line)
    if cells is None:
        raise MalformedInput("not a line of `perf stat -x,` or `perf stat -j`", file=str(path), line=number)
    value, _, event, *rest = cells
    if not event:
        return None
    running = rest[1] if len(rest) > 1 else ""
    return _EventCount(event, value, float(running) if _NUMBER.fullmatch(running) else 100.0)


def _cells(line: str) -> Sequence[str] | None:
    """Value, unit, event, time and percentage running …: what stands before (time, processor) is cut off."""
    for separator in ",;\t|":
        cells = next(csv.reader([line], delimiter=separator))
        if separator != ",":  # then perf may write decimals with a comma, as the locale has them
            cells = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in cells]
        for start in range(min(4, len(cells) - 2)):
            value, unit, event = cells[start : start + 3]
            counted = _NUMBER.fullmatch(value) is not None or value.startswith("<not")
            named = bool(event) and _NUMBER.fullmatch(event) is None
            metric_alone = not value and not unit and not event and any(cells[start + 3 :])
            if (counted and unit in _UNITS and named) or metric_alone:
                return cells[start:]
    return None


def _plain(event: str) -> str:
    """An event's name as perf has it on a machine with one kind of cores."""
    match = _HYBRID.fullmatch(event)
    if match is None or match["more"]:
        return event.rstrip("/")
    return match["event"] + (f":{match['modifier']}" if match["modifier"] else "")


def _add(values: dict[str, tuple[float | None, str]], event: str, value: float, exactness: str) -> None:
    before, kept = values.get(event, (None, exactness))
    values[event] = ((before or 0.0) + value, "sampled" if "sampled" in (kept, exactness) else "exact")


def _rows(
    values: dict[str, tuple[float | None, str]], path: Path, options: ImportOptions, source: str, command: str
) -> list[Row]:
    known = {event: factor for event, factor in _TIMES.items() if event in values}
    mapping = options.mapping
    if known:
        mapping = type(mapping)(mapping.counters, mapping.columns, {**known, **mapping.seconds})
    program = first_of(options.program, command, path.stem)
    identity = (joined((program, options.size)), program, "", options.size, options.system)
    return rows_of(values, identity, 0, source, mapping)


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
