"""Nsight Compute's CSV (`ncu --csv`): a line a metric, or with `--page raw` a line a launch.

`ncu` writes numbers as the user's locale has them: whether a comma or a point stands before the decimals is
found from all numbers of a file. A report (`.ncu-rep`) is turned into CSV by `ncu --import`.
"""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apportion.data.counter_table import SECONDS, Row
from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports.naming import (
    ImportOptions,
    decimal_mark,
    first_of,
    joined,
    number_in,
    rows_of,
)

SOURCE = "ncu"
REPORT = ".ncu-rep"
_DURATION = ("gpu__time_duration.sum", "Duration")
_UNITS = {
    "nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3,
    "second": 1.0, "s": 1.0,
}  # fmt: skip
_ABOUT = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
}  # fmt: skip
"Columns that are no metric."


@dataclass
class NcuLaunch:
    """One launch of a kernel."""

    kernel: str
    process: str
    stream: str
    grid: str
    metrics: dict[str, float] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    "Metrics that the GPU could not give (`n/a`)."
    seconds: float | None = None

    def take(self, metric: str, unit: str, text: str, file: str, line: int, decimal: str) -> None:
        """One metric; a duration becomes seconds, words are not kept."""
        if not text or text in ("n/a", "N/A", "nan"):
            self.missing.add(metric)
            return
        if not re.match(r"[-+]?[\d.,]", text):
            return
        value = number_in(text, file, line, metric, decimal=decimal)
        if metric in _DURATION:
            if unit not in _UNITS:
                raise MalformedInput(f"the unit of {metric} is {unit!r}", file=file, line=line)
            self.seconds = value * _UNITS[unit]
        self.metrics[metric] = value


def read(path: Path, options: ImportOptions) -> list[Row]:
    """Every kernel of a file, one run each; its launches are repeats."""
    lines = _exported(path) if path.suffix == REPORT else _lines(path)
    rows: list[Row] = []
    repeats: dict[str, int] = {}
    for launch in launches_of(lines, str(path)):
        program = first_of(options.program, launch.process, path.stem)
        run = joined((program, launch.kernel, options.size))
        identity = (run, program, launch.kernel, options.size, options.system)
        repeat = repeats.get(identity[0], 0)
        repeats[identity[0]] = repeat + 1
        values: dict[str, tuple[float | None, str]] = {
            **dict.fromkeys(launch.missing, (None, "exact")),
            **{metric: (value, "exact") for metric, value in launch.metrics.items()},
        }
        found = rows_of(values, identity, repeat, SOURCE, options.mapping)
        if launch.grid and all(row.counter != "warp_blocks" for row in found):
            blocks = float(math.prod(int(part) for part in re.findall(r"\d+", launch.grid)))
            found.append(Row(*identity, repeat, "warp_blocks", blocks, SOURCE, "exact"))
        if launch.seconds is not None:
            found.append(Row(*identity, repeat, SECONDS, launch.seconds, SOURCE, "exact"))
        rows += found
    return rows


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error


def _exported(path: Path) -> list[str]:
    """What `ncu` itself reads in a report of its own."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise UnreadableFile(
            f"Reading {path} needs NVIDIA's `ncu`, which is not installed here. Where it is, write: "
            f"ncu --import {path.name} --csv --page raw > {path.stem}.csv"
        )
    words = [ncu, "--import", str(path), "--csv", "--page", "raw"]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False, timeout=600
    )
    if done.returncode:
        raise UnreadableFile(f"ncu cannot read {path}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout.splitlines()


def launches_of(lines: Iterable[str], name: str) -> list[NcuLaunch]:
    """The launches in the lines of a file; what `ncu` says besides (`==PROF== …`) is passed over."""
    table = [(number, line) for number, line in enumerate(lines, start=1) if line.startswith('"')]
    if not table:
        raise MalformedInput(
            "it holds no table; write it with `ncu --csv --log-file FILE`", file=name, line=1
        )
    start, *body = table
    header = next(csv.reader([start[1]]))
    if "ID" not in header or "Kernel Name" not in header:
        raise MalformedInput("the table lacks the columns ID and Kernel Name", file=name, line=start[0])
    launches: dict[str, NcuLaunch] = {}
    units: Sequence[str] = [""] * len(header)
    long = "Metric Name" in header
    cells_of = [next(csv.reader([line])) for _, line in body]
    numbers = (
        [header.index("Metric Value")]
        if long
        else [place for place, column in enumerate(header) if column not in _ABOUT]
    )
    decimal = decimal_mark(cells[place] for cells in cells_of for place in numbers if place < len(cells))
    for (number, _), cells in zip(body, cells_of, strict=True):
        if len(cells) < (header.index("Metric Value") + 1 if long else len(header)):
            raise MalformedInput(f"{len(cells)} cells instead of {len(header)}", file=name, line=number)
        entry = dict(zip(header, cells, strict=False))
        if not entry["ID"]:
            units = cells  # of a raw page: the second line holds the units
            continue
        launch = launches.setdefault(
            entry["ID"],
            NcuLaunch(
                entry["Kernel Name"],
                entry.get("Process Name", ""),
                entry.get("Stream", ""),
                entry.get("Grid Size", ""),
            ),
        )
        if long:
            if entry["Metric Name"]:
                launch.take(
                    entry["Metric Name"], entry["Metric Unit"], entry["Metric Value"], name, number, decimal
                )  # fmt: skip
        else:
            for metric, unit, text in zip(header, units, cells, strict=False):
                if metric not in _ABOUT:
                    launch.take(metric, unit, text, name, number, decimal)
    if not launches:
        raise MalformedInput("the table has no row", file=name, line=start[0])
    return list(launches.values())
