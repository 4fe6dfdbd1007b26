"""Counters to and from objects: pandas frames, Hatchet's `GraphFrame`, Thicket's `Thicket`.

    table = table_of(frame, ImportOptions(program="lulesh", system="quartz"))     any of the three
    as_pandas(table), as_graphframes(table), as_thicket(table)

A pandas frame has the documented columns of a table, or is read as a CSV file with its columns would be. Of
Hatchet's and Thicket's, each region is a run, its kernel the path of names from the root; ranks and threads
are repeats. A Thicket's profiles are told apart by their metadata, as Caliper's files are.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from apportion.data.counter_table import SCHEMA, SECONDS, CounterTable, Row, System
from apportion.errors import InvalidSetting, MissingPackage
from apportion.measure.counters.imports import numbered_after
from apportion.measure.counters.imports.caliper import experiment_of
from apportion.measure.counters.imports.naming import ImportOptions, first_of, joined, rows_of
from apportion.measure.counters.imports.plain import rows_of_table

_OURS = "apportion."
"What the names of metadata begin with that `as_thicket` writes."
_NO_METRICS = ("name", "nid", "rank", "thread", "profile", "type", "line", "file", "module", "node_id")
_TIMES = (
    SECONDS, "time (inc)", "Avg time/rank (inc)", "avg#inclusive#sum#time.duration", "Total time (inc)",
    "sum#inclusive#sum#time.duration", "inclusive#sum#time.duration", "time", "Avg time/rank",
    "avg#sum#time.duration", "Total time", "sum#sum#time.duration", "sum#time.duration", "time.duration",
)  # fmt: skip
"Columns that are the seconds of a region, the most telling first."


def table_of(frame: Any, options: ImportOptions | None = None) -> CounterTable:
    """The table of counters in a pandas frame, a Hatchet `GraphFrame` or a `Thicket`.

    Args:
        options: what it does not say of itself: program, system, size, a mapping of names.

    Raises:
        InvalidSetting: it is none of these, or holds no metric.
    """
    options = options or ImportOptions()
    if hasattr(frame, "graph") and hasattr(frame, "dataframe"):
        rows = _of_regions(frame, options)
    elif hasattr(frame, "to_csv") and hasattr(frame, "columns"):
        if set(SCHEMA) <= set(frame.columns):
            return _of_documented(frame)
        reader = csv.reader(io.StringIO(frame.to_csv(index=False)))
        rows = rows_of_table(reader, "the frame", options)
    else:
        raise InvalidSetting(
            "Counters come in a pandas frame, a Hatchet GraphFrame or a Thicket, "
            f"not in a {type(frame).__name__}"
        )
    systems = {row.system for row in rows if row.system}
    return CounterTable.of(rows, [System(name) for name in sorted(systems)])


def as_pandas(table: CounterTable) -> Any:
    """The table as a pandas frame with the documented columns; a missing value is NaN.

    Raises:
        MissingPackage: pandas is not installed.
    """
    return _package("pandas").DataFrame(table.frame.to_dict(as_series=False))


def as_graphframes(table: CounterTable) -> dict[tuple[str, str, str, int], Any]:
    """Program, size, system and repeat → a `GraphFrame` of its kernels, whose names are paths with slashes.

    Raises:
        MissingPackage: Hatchet is not installed.
    """
    frames = _package("hatchet")
    executions: dict[tuple[str, str, str, int], dict[str, dict[str, float]]] = {}
    for entry in table.frame.iter_rows(named=True):
        row = Row(**entry)
        kernels = executions.setdefault((row.program, row.size, row.system, row.repeat), {})
        metrics = kernels.setdefault(row.kernel or row.program, {})
        name = row.counter if row.counter not in metrics else f"{row.counter} ({row.source})"
        metrics[name] = math.nan if row.value is None else row.value
    found = {}
    for key, kernels in executions.items():
        names = list(dict.fromkeys(name for metrics in kernels.values() for name in metrics))
        frame = frames.GraphFrame.from_literal(_tree(kernels, names))
        frame.metadata = {
            f"{_OURS}{what}": value
            for what, value in zip(("program", "size", "system", "repeat"), key, strict=True)
        }
        found[key] = frame
    return found


def as_thicket(table: CounterTable) -> Any:
    """The table as a `Thicket`: a profile for each execution, with what is known of it as metadata.

    Raises:
        MissingPackage: Thicket is not installed.
        InvalidSetting: the table is empty.
    """
    thicket = _package("thicket").Thicket
    profiles = [
        thicket.thicketize_graphframe(frame, " ".join(map(str, key)))
        for key, frame in as_graphframes(table).items()
    ]
    if not profiles:
        raise InvalidSetting("An empty table makes no Thicket")
    return profiles[0] if len(profiles) == 1 else thicket.concat_thickets(profiles, disable_tqdm=True)


def _of_documented(frame: Any) -> CounterTable:
    columns = {name: frame[name].tolist() for name in SCHEMA}
    columns["value"] = [
        None if value is None or math.isnan(value) else float(value) for value in columns["value"]
    ]
    try:
        checked = pl.DataFrame(columns, strict=False).cast(pl.Schema(SCHEMA))
    except (PolarsError, TypeError, ValueError) as error:
        raise InvalidSetting(f"The columns of the frame are not those of counters: {error}") from error
    systems = sorted({name for name in checked["system"].to_list() if name})
    return CounterTable(checked, {name: System(name) for name in systems})


def _of_regions(frame: Any, options: ImportOptions) -> list[Row]:
    """Rows of a GraphFrame (one execution) or of a Thicket (one for each profile)."""
    data = frame.dataframe
    levels = list(data.index.names)
    metadata = getattr(frame, "metadata", None)
    metrics = [name for name in data.columns if name not in _NO_METRICS and data[name].dtype.kind in "iuf"]
    if not metrics:
        raise InvalidSetting("There is no column of numbers in it")
    profiles: dict[Any, list[Row]] = {}
    repeats: dict[tuple[Any, str], int] = {}
    for index, entry in zip(data.index, data[metrics].itertuples(index=False, name=None), strict=True):
        place = dict(zip(levels, index if isinstance(index, tuple) else (index,), strict=True))
        values = {
            str(name): (float(value), "exact")
            for name, value in zip(metrics, entry, strict=True)
            if not math.isnan(value)
        }
        if not values:
            continue  # a region that another profile has
        profile = place.get("profile")
        known = _known(metadata, profile)
        program, size, system = _identity(known, options)
        kernel = "/".join(str(node.frame.get("name")) for node in place["node"].path())
        kernel = "" if kernel == program and _OURS + "program" in known else kernel
        time = next((name for name in _TIMES if name in values), None)
        if time is not None and SECONDS not in values:
            values[SECONDS] = values[time]
        identity = (joined((program, kernel, size)), program, kernel, size, system)
        repeat = repeats.get((profile, kernel), 0)
        repeats[profile, kernel] = repeat + 1
        profiles.setdefault(profile, []).extend(
            rows_of(dict(values), identity, repeat, _source(frame), options.mapping)
        )
    taken: dict[tuple[str, str], int] = {}
    in_order = sorted(profiles, key=lambda one: int(_known(metadata, one).get(_OURS + "repeat", 0)))
    return [row for profile in in_order for row in numbered_after(taken, profiles[profile])]


def _identity(known: Mapping[str, str], options: ImportOptions) -> tuple[str, str, str]:
    """Program, size and system of an execution, by what was said and by its metadata."""
    if _OURS + "program" in known:
        return (
            first_of(options.program, known[_OURS + "program"]),
            first_of(options.size, known.get(_OURS + "size", "")),
            first_of(options.system, known.get(_OURS + "system", "")),
        )
    executable = first_of(known.get("executablepath", ""), known.get("executable", "")).rpartition("/")[2]
    program = first_of(options.program, executable)
    if not program:
        raise InvalidSetting("Say the program: neither the options nor the metadata name it")
    system = first_of(options.system, known.get("cluster", ""), known.get("hostname", ""))
    return program, first_of(options.size, experiment_of(known)), system


def _known(metadata: Any, profile: Any) -> dict[str, str]:
    """Metadata of a GraphFrame (a dict) or of one profile of a Thicket (a frame with a row for each)."""
    if metadata is None or not len(metadata):
        return {}
    found: Iterable[tuple[Any, Any]]
    found = metadata.loc[profile].items() if hasattr(metadata, "loc") else metadata.items()
    return {
        str(name): str(value)
        for name, value in found
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }


def _source(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]


def _tree(kernels: Mapping[str, Mapping[str, float]], names: list[str]) -> list[dict[str, Any]]:
    """Hatchet's literal of regions: `main/solve` lies below `main`, which need not have values of its own."""
    roots: list[dict[str, Any]] = []
    made: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        parts = kernel.split("/")
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            if path in made:
                continue
            metrics = {name: kernels.get(path, {}).get(name, math.nan) for name in names}
            made[path] = {
                "frame": {"name": parts[depth - 1], "type": "region"},
                "metrics": metrics,
                "children": [],
            }
            above = roots if depth == 1 else made["/".join(parts[: depth - 1])]["children"]
            above.append(made[path])
    return roots


def _package(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise MissingPackage(
            {"hatchet": "llnl-hatchet", "thicket": "llnl-thicket"}.get(name, name), "frames", "Such an object"
        ) from error
