"""Tables of configurations and what each took, as other tools and other machines wrote them.

    CSV (also .csv.gz)    a column for each parameter, and one of `milliseconds`, `seconds`, `time_ms`, or
                          `time` (milliseconds, as Kernel Tuner has it); a word for a number is a failure
    Kernel Tuner          its cache file (JSON with `cache` and `tune_params_keys`)
    T4                    results of the autotuning community's schema (JSON with `results`)

A table is also a space: that of the configurations it holds. `space_of_t1` and `write_t1` read and write T1,
the schema of spaces.
"""

from __future__ import annotations

import ast
import csv
import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.measure.space import Configuration, Range, Space
from apportion.settings import replace_file

_TIMES = {"milliseconds": 1e-3, "seconds": 1.0, "time_ms": 1e-3, "time": 1e-3}
"Columns that are a time, and their unit in seconds."
SECONDS = "seconds"
_NOT_PARAMETERS = ("repeats", "times", "failure")
_UNITS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_T4_TIMES = ("time", "runtime", SECONDS)
_MOST_LISTED = 10_000
"Values of a range that are written one by one."
_FAILED = {"compile": "compile", "runtime": "runtime", "timeout": "timeout", "correctness": "correctness"}


@dataclass(frozen=True)
class Tried:
    """One configuration, and what came of it."""

    configuration: Configuration
    seconds: float
    "Or what else the table's objective is; NaN where it failed."
    failure: str = ""
    repeats: tuple[float, ...] = ()
    "Seconds of each call."


@dataclass(frozen=True)
class TuningTable:
    """Configurations of one program on one machine, measured."""

    name: str
    rows: tuple[Tried, ...]
    objective: str = SECONDS
    "What is to be small: seconds, or anything else that was written down."

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidSetting(f"{self.name} holds no configuration")
        names = set(self.rows[0].configuration)
        if any(set(row.configuration) != names for row in self.rows):
            raise InvalidSetting(f"The configurations of {self.name} have different parameters")

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """All, in order."""
        return tuple(row.configuration for row in self.rows)

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """What each took; NaN where it failed."""
        return tuple(row.seconds for row in self.rows)

    @cached_property
    def space(self) -> Space:
        """The space of its configurations."""
        values: dict[str, list[Any]] = {name: [] for name in self.rows[0].configuration}
        for row in self.rows:
            for name, value in row.configuration.items():
                if value not in values[name]:
                    values[name].append(value)
        ordered = {name: _ordered(known) for name, known in values.items()}
        return Space(ordered, drawn=self.configurations)

    @property
    def best(self) -> float:
        """Seconds of the fastest.

        Raises:
            InvalidSetting: none ran.
        """
        good = [value for value in self.seconds if math.isfinite(value)]
        if not good:
            raise InvalidSetting(f"No configuration of {self.name} ran")
        return min(good)


def read_table(path: Path) -> TuningTable:
    """The table in a file of any of the formats.

    Raises:
        UnreadableFile: the file is not there.
        MalformedInput: it is no such table; the message says what is missing, and where.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    name = path.name.split(".")[0]
    try:
        if not text.lstrip().startswith("{"):
            return TuningTable(name, tuple(_of_csv(text, path)))
        said = json.loads(text)
        if "cache" in said:
            return TuningTable(name, tuple(_of_cache(said)), _objective_of(said))
        if "results" in said:
            return TuningTable(name, tuple(_of_t4(said)), _objective_of_t4(said))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, MalformedInput):
            raise
        raise MalformedInput(f"this is no table of configurations ({error})", file=str(path)) from error
    raise MalformedInput("this JSON has neither 'cache' (Kernel Tuner) nor 'results' (T4)", file=str(path))


def write_cache(path: Path, table: TuningTable, space: Space, *, device: str = "", kernel: str = "") -> None:
    """Write a cache file of Kernel Tuner's: it continues from it, and replays it in its simulation mode."""
    names = list(space.values)
    cache = {
        ",".join(str(row.configuration[name]) for name in names): {
            **row.configuration,
            **_cached(row, table.objective),
            "times": [one * 1e3 for one in row.repeats],
            "compile_time": 0, "verification_time": 0, "benchmark_time": 0, "strategy_time": 0,
            "framework_time": 0, "timestamp": "1970-01-01 00:00:00",
        }
        for row in table.rows
    }  # fmt: skip
    described = {
        "schema_version": "1.0.0", "device_name": device, "kernel_name": kernel or table.name,
        "problem_size": [1],
        "tune_params_keys": names, "tune_params": {name: _listed(space, name) for name in names},
        "objective": "time" if table.objective == SECONDS else table.objective,
        "objective_higher_is_better": False, "cache": cache,
    }  # fmt: skip
    replace_file(path, json.dumps(described, indent=1, default=str).encode())


def write_t4(path: Path, table: TuningTable) -> None:
    """Write results in the T4 schema."""
    timed = table.objective == SECONDS
    measured = {"name": "time", "unit": "ms"} if timed else {"name": table.objective, "unit": ""}
    scale = 1e3 if timed else 1.0
    results = [
        {
            "configuration": dict(row.configuration),
            "times": {"runtimes": [one * 1e3 for one in row.repeats]},
            "invalidity": "correct" if math.isfinite(row.seconds) else _invalidity(row.failure),
            "correctness": int(math.isfinite(row.seconds)),
            "measurements": [measured | {"value": row.seconds * scale}] if math.isfinite(row.seconds) else [],
            "objectives": [measured["name"]],
        }
        for row in table.rows
    ]
    text = json.dumps({"schema_version": "1.0.0", "results": results}, indent=1, default=str)
    replace_file(path, text.encode())


def write_t1(path: Path, space: Space, *, kernel: Mapping[str, Any] | None = None) -> None:
    """Write a space in the T1 schema.

    Args:
        path: the file.
        space: with lists of numbers, truths and words, and a condition that is an expression.
        kernel: T1's `KernelSpecification`; what is no kernel has none, and its file only the space.

    Raises:
        InvalidSetting: T1 cannot say what the space says.
    """
    if space.drawn or space.conditions:
        what = "configurations that were drawn" if space.drawn else "parameters that sometimes mean nothing"
        raise InvalidSetting(f"T1 has no {what}: write the results as t4 instead")
    if not (space.allowed is None or isinstance(space.allowed, str)):
        raise InvalidSetting("T1 has expressions, no functions: give `allowed` as an expression, in quotes")
    parameters = [_t1_parameter(name, _values_of(space.values[name], name)) for name in space.values]
    said: dict[str, Any] = {"TuningParameters": parameters}
    if space.allowed is not None:
        used = [name for name in space.values if re.search(rf"\b{name}\b", space.allowed)]
        said["Conditions"] = [{"Parameters": used, "Expression": space.allowed}]
    whole: dict[str, Any] = {"ConfigurationSpace": said}
    if kernel is not None:
        whole |= {"General": {"FormatVersion": 1}, "KernelSpecification": dict(kernel)}
    replace_file(path, json.dumps(whole, indent=1).encode())


def _t1_parameter(name: str, values: Sequence[Any]) -> dict[str, str]:
    kinds = {type(value) for value in values}
    for kind, types in (("bool", {bool}), ("int", {int}), ("float", {int, float}), ("string", {str})):
        if kinds <= types:
            return {"Name": name, "Type": kind, "Values": repr(list(values))}
    raise InvalidSetting(f"T1 has numbers, truths and words: {name} has the values {list(values)}")


def space_of_t1(path: Path) -> Space:
    """The space in a file of the T1 schema, or of a plain object: parameter → list of values.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it holds something else.
    """
    try:
        said = json.loads(path.read_text())
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise MalformedInput(f"not JSON ({error})", file=str(path)) from error
    try:
        described = said.get("ConfigurationSpace")
        if described is None:
            return Space({name: _values(values) for name, values in said.items()})
        values = {one["Name"]: _values(one["Values"]) for one in described["TuningParameters"]}
        conditions = [one["Expression"] for one in described.get("Conditions", [])]
        return Space(values, " and ".join(f"({one})" for one in conditions) or None)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MalformedInput(f"this is no space ({error})", file=str(path)) from error


def _of_csv(text: str, path: Path) -> list[Tried]:
    reader = csv.DictReader(text.splitlines())
    columns = list(reader.fieldnames or ())
    time = next((name for name in _TIMES if name in columns), None)
    if time is None:
        raise MalformedInput(f"there is no column {' or '.join(_TIMES)}", file=str(path), line=1)
    names = [name for name in columns if name != time and name not in _NOT_PARAMETERS]
    rows = []
    for entry in reader:
        configuration = {name: _value(entry[name]) for name in names}
        unit = _TIMES[time]
        seconds, failure = _seconds(entry[time], unit)
        repeats = tuple(float(word) * unit for word in (entry.get("repeats") or "").split())
        rows.append(Tried(configuration, seconds, failure, repeats))
    return rows


def _of_cache(said: Mapping[str, Any]) -> list[Tried]:
    names = said["tune_params_keys"]
    objective = _objective_of(said)
    rows = []
    for entry in said["cache"].values():
        if objective == SECONDS:
            seconds, failure = _seconds(entry["time"], 1e-3)
        else:
            seconds, failure = _number(entry.get(objective, entry["time"]))
        times = tuple(float(one) * 1e-3 for one in entry.get("times") or () if isinstance(one, int | float))
        rows.append(Tried({name: entry[name] for name in names}, seconds, failure, times))
    return rows


def _of_t4(said: Mapping[str, Any]) -> list[Tried]:
    rows = []
    for entry in said["results"]:
        values = {one["name"]: one for one in entry.get("measurements", ())}
        objective = (entry.get("objectives") or ["time"])[0]
        found = values.get(objective)
        reason = entry.get("invalidity", "correct")
        if found is None or reason != "correct":
            rows.append(Tried(entry["configuration"], math.nan, _FAILED.get(reason, str(reason))))
            continue
        unit = _UNITS.get(found.get("unit", "ms"), 1e-3)
        timed = objective in _T4_TIMES
        seconds, failure = _seconds(found["value"], unit) if timed else _number(found["value"])
        runtimes = tuple(
            float(one) * (unit if timed else 1e-3) for one in entry.get("times", {}).get("runtimes", ())
        )
        rows.append(Tried(entry["configuration"], seconds, failure, runtimes))
    return rows


def _cached(row: Tried, objective: str) -> dict[str, Any]:
    """What Kernel Tuner's cache says of a configuration: its time, and another objective under its name."""
    if not math.isfinite(row.seconds):
        return {"time": "RuntimeFailedConfig"}
    if objective == SECONDS:
        return {"time": row.seconds * 1e3}
    return {"time": float(np.median(row.repeats)) * 1e3 if row.repeats else 0.0, objective: row.seconds}


def _objective_of(said: Mapping[str, Any]) -> str:
    """What a cache file is to make small; time where it is to make something large (GFLOP/s)."""
    objective = said.get("objective", "time")
    return (
        str(objective) if objective != "time" and said.get("objective_higher_is_better") is False else SECONDS
    )


def _objective_of_t4(said: Mapping[str, Any]) -> str:
    objective = next((one["objectives"][0] for one in said["results"] if one.get("objectives")), "time")
    return SECONDS if objective in _T4_TIMES else str(objective)


def _invalidity(failure: str) -> str:
    """T4's word for why a configuration failed."""
    if failure in _FAILED:
        return failure
    plain = failure.lower()
    marks = {"wrong": "correctness", "timeout": "timeout", "compil": "compile"}
    return next((word for mark, word in marks.items() if plain.startswith(mark)), "runtime")


def _number(value: Any) -> tuple[float, str]:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return math.nan, str(value)
    return (found, "") if math.isfinite(found) else (math.nan, f"{value}")


def _seconds(value: Any, unit: float) -> tuple[float, str]:
    try:
        seconds = float(value) * unit
    except (TypeError, ValueError):
        return math.nan, str(value)
    return (seconds, "") if math.isfinite(seconds) and seconds > 0 else (math.nan, f"{value}")


def _value(text: str) -> Any:
    """What a cell says: a whole number, a number, a truth, or words."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


def _values(said: Any) -> Sequence[Any]:
    found = ast.literal_eval(said) if isinstance(said, str) else said
    if not isinstance(found, list | tuple):
        raise ValueError(f"{said!r} is no list of values")
    return tuple(found)


def _ordered(values: list[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(values))
    except TypeError:
        return tuple(values)


def _listed(space: Space, name: str) -> list[Any]:
    values = space.values[name]
    if isinstance(values, Range):
        raise InvalidSetting(f"{name} is a range: Kernel Tuner's files have lists of values only")
    return list(values)


def _values_of(values: Sequence[Any] | Range, name: str) -> list[Any]:
    """All values of a parameter; those of a range as a list."""
    if not isinstance(values, Range):
        return list(values)
    if values.count > _MOST_LISTED:
        raise InvalidSetting(f"{name} is a range of {values.count:,.0f} values: T1 has lists only")
    return [values.value(place) for place in range(int(values.count))]
