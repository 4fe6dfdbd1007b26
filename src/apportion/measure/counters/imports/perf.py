"""`perf stat -j`: one JSON object a line; values are strings, and may be words."""

from __future__ import annotations

import json
from pathlib import Path

from apportion.data.counter_table import Row
from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports.naming import ImportOptions, first_of, joined, number_in, rows_of

SOURCE = "perf-stat"
_TIMES = {"duration_time": 1e-9}
"Events of perf's that are times, and their unit in seconds."


def read(path: Path, options: ImportOptions) -> list[Row]:
    """The events of a file, summed over intervals, processors and threads where it tells them apart."""
    values: dict[str, tuple[float | None, str]] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            entry = json.loads(line)
            event, text = entry["event"], str(entry["counter-value"])
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedInput(
                f"not a line of `perf stat -j` ({error})", file=str(path), line=number
            ) from error
        event = event.rstrip("/")
        if text.startswith("<"):  # <not supported>, <not counted>
            values.setdefault(event, (None, "exact"))
            continue
        value = number_in(text, str(path), number, f"the value of {event}")
        # Where there are more events than counters they take turns, and perf extrapolates.
        exactness = "exact" if float(entry.get("pcnt-running", 100.0)) >= 100 else "sampled"
        before, kept = values.get(event, (None, exactness))
        values[event] = ((before or 0.0) + value, "sampled" if "sampled" in (kept, exactness) else "exact")
    if not values:
        raise MalformedInput(
            "it holds no event; write it with `perf stat -j -o FILE`", file=str(path), line=1
        )
    known = {event: factor for event, factor in _TIMES.items() if event in values}
    mapping = options.mapping
    if known:
        mapping = type(mapping)(mapping.counters, mapping.columns, {**known, **mapping.seconds})
    program = first_of(options.program, path.stem)
    identity = (joined((program, options.size)), program, "", options.size, options.system)
    return rows_of(values, identity, 0, SOURCE, mapping)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
