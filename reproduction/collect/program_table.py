"""One table of counters and times from what `program_times` left for each system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apportion.data.counter_table import SECONDS, CounterTable, Row, System
from apportion.errors import UnreadableFile
from reproduction.collect.program_profile import TABLE_I_COUNTERS
from reproduction.collect.program_times import ABOUT, COUNTERS

_SIMULATED = ("l1_miss_hit_ratio", "ll_miss_hit_ratio", "branch_miss_ratio")
"Counters of simulated caches and branches."


def program_table(folder: Path) -> CounterTable:
    """All systems of a folder: every repeat, and the counters of the runs that were counted; failures are left
    out, and `failures` lists them.

    Raises:
        UnreadableFile: nothing was measured there.
    """
    rows: list[Row] = []
    systems: list[System] = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem == COUNTERS:
            rows += [
                Row(*_identity(line["run"]), "", 0, name, value, "torch-dispatch", "exact")
                for line in _lines(path)
                for name, value in line["counters"].items()
            ]
            continue
        if path.stem == TABLE_I_COUNTERS:
            rows += [
                Row(
                    *_identity(line["run"]), "", 0, name, value, "callgrind",
                    "simulated" if name in _SIMULATED else "exact",
                )
                for line in _lines(path)
                for name, value in line["counters"].items()
            ]  # fmt: skip
            continue
        for line in _lines(path):
            if line["run"] == ABOUT:
                description = {key: str(value) for key, value in line.items() if key != "run"}
                kind = "gpu" if line["device"] == "cuda" else "cpu"
                systems.append(System(path.stem, kind, description=description))
            rows += [
                Row(*_identity(line["run"]), path.stem, repeat, SECONDS, seconds, "clock", "exact")
                for repeat, seconds in enumerate(line.get("seconds", ()))
            ]
    if not systems:
        raise UnreadableFile(
            f"{folder} has no times: run python -m reproduction.collect.program_times measure"
        )
    return CounterTable.of(rows, systems)


def failures(folder: Path) -> list[tuple[str, str, str]]:
    """System, run and reason of each run that failed."""
    return [
        (path.stem, line["run"], line["failure"])
        for path in sorted(folder.glob("*.jsonl"))
        for line in _lines(path)
        if "failure" in line
    ]


def _identity(run: str) -> tuple[str, str, str, str]:
    family, name, size = run.split("/")
    return run, family, name, size


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)
