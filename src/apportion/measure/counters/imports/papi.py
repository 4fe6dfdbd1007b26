"""PAPI's high-level JSON (`papi_hl_output/rank_*.json`): regions of threads, with the events counted in each.

Since PAPI 6.0.0.1 threads and regions are objects with numbers for keys, and a region carries its name; in
6.0.0 both are lists, and a region is an object whose one key is its name. A thread that comes through a
region several times has it there several times: these are repeats. Threads that ran the same region are one
execution: their counts are added, and the longest of their times is its time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apportion.data.counter_table import SECONDS, Row
from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports.naming import ImportOptions, first_of, joined, rows_of

SOURCE = "papi"
_ABOUT = ("name", "parent_region_id", "region_count", "cycles", "real_time_nsec")
"What stands in a region beside its events."


def read(path: Path, options: ImportOptions) -> list[Row]:
    """The regions of a file, one run each."""
    try:
        text = path.read_text()
        said = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise MalformedInput(f"not JSON ({error})", file=str(path), line=line) from error
    regions: dict[tuple[str, int], dict[str, float]] = {}
    seconds: dict[tuple[str, int], float] = {}
    try:
        for name, repeat, region in _regions(said["threads"]):
            counts = regions.setdefault((name, repeat), {})
            for event, value in region.items():
                if event not in _ABOUT:
                    counts[event] = counts.get(event, 0.0) + float(value)
            if "real_time_nsec" in region:
                before = seconds.get((name, repeat), 0.0)
                seconds[name, repeat] = max(before, float(region["real_time_nsec"]) * 1e-9)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedInput(
            f"not the output of PAPI's high-level interface ({error!r})",
            file=str(path),
            line=_line_of(text, error),
        ) from error
    if not regions:
        raise MalformedInput("it holds no region", file=str(path), line=1)
    program = first_of(options.program, path.parent.parent.name, path.stem)
    rows: list[Row] = []
    for (name, repeat), counts in regions.items():
        identity = (joined((program, name, options.size)), program, name, options.size, options.system)
        values: dict[str, tuple[float | None, str]] = {
            event: (value, "exact") for event, value in counts.items()
        }
        rows += rows_of(values, identity, repeat, SOURCE, options.mapping)
        if (name, repeat) in seconds:
            rows.append(Row(*identity, repeat, SECONDS, seconds[name, repeat], SOURCE, "exact"))
    return rows


def _regions(threads: Any) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Name, how often its thread was there before, and what is said of each region."""
    for thread in threads.values() if isinstance(threads, dict) else threads:
        regions = thread["regions"]
        if isinstance(regions, dict):
            named = [(region["name"], region) for region in regions.values()]
        else:
            named = [pair for entry in regions for pair in entry.items()]
        times: Counter[str] = Counter()
        for name, region in named:
            yield name, times[name], region
            times[name] += 1


def _line_of(text: str, error: Exception) -> int:
    """Where in the file the value stands that is wrong, as far as the error quotes it."""
    quoted = str(error).rpartition(": ")[2].strip("'\"")
    place = text.find(quoted) if quoted else -1
    return text.count("\n", 0, place) + 1 if place >= 0 else 1
