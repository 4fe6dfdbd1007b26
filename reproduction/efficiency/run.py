"""`python -m reproduction efficiency`: how near co-execution comes to the best cut of each bundled kernel."""

from __future__ import annotations

import json as json_text
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from apportion import __version__
from apportion.advise.learned_policy import learned
from apportion.cli.show import note, print_json, print_table, progress
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.jobs.journal import Journal
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.settings import replace_file
from apportion.suite import PROBLEMS, problem_of
from apportion.suite.base import Problem
from reproduction.efficiency.page import CURVES, curves, page
from reproduction.efficiency.rounds import Budget, Row, evaluate, row_from

_FLAG = Parameter(negative="")
_ROWS, _MACHINE, _PAGE = "efficiency.jsonl", "machine.json", "co-execution.md"
_REMARKS = "remarks.md"
"Remarks on the rows; where the file exists, the page includes them."


def efficiency(
    *problems: str,
    devices: str | None = None,
    small: Annotated[bool, _FLAG] = False,
    large: Annotated[bool, _FLAG] = False,
    repeat: int | None = None,
    seconds: float = 60.0,
    budget: float = 6.0,
    total: float | None = None,
    threads: int | None = None,
    copying: str = "",
    out: Path | None = None,
    stored: Annotated[bool, _FLAG] = False,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Measure how near the policy's cuts come to the best cut of each bundled kernel.

    Each kernel is measured alone, at every cut, and at the first and third launch of the policy
    `learned+feedback`, in turn. With `--out` the rows are written as they come, the same command continues
    after an interruption, and a page with the curves is made.

    Args:
        problems: names of problems; all when none is given.
        devices: ids of devices, with commas between them; all when not given.
        small: small instances, to verify only.
        large: instances that keep a fast device busy for some milliseconds.
        repeat: rounds; at most 100 when not given.
        seconds: the deadline of each launch.
        budget: seconds that one kernel may take; five rounds are made in any case.
        total: seconds after which no further kernel is begun.
        threads: threads of each CPU device.
        copying: ids of CPU devices that get copies of all arrays, as a device with its own memory does.
        out: the folder for the rows and the page.
        stored: measure nothing: make the page again from the rows in that folder. It needs no device.
        json: print one line of JSON per result.
    """
    if stored:
        if out is None:
            raise InvalidSetting("--stored makes the page of a folder again: name it with --out")
        write_page(out, out)
        note(f"The page is {out / _PAGE}.")
        return
    chosen = [problem_of(name) for name in problems] or list(PROBLEMS.values())
    size = "small" if small else "large" if large else "usual"
    options = DriverOptions(threads=threads, copying=tuple(filter(None, copying.split(","))))
    names = devices.split(",") if devices else None
    with OpenCLBackend(options, Limits(seconds=seconds)) as backend:
        spent = Budget(budget) if repeat is None else Budget(budget, repeat)
        until = float("inf") if total is None else time.monotonic() + total
        _efficiency(chosen, backend, names, size, spent, until, out, json=json)


def _efficiency(
    chosen: list[Problem],
    backend: OpenCLBackend,
    names: list[str] | None,
    size: str,
    budget: Budget,
    until: float,
    out: Path | None,
    *,
    json: bool,
) -> None:
    rows = _read_rows(out) if out is not None else []
    done = frozenset((row.problem, row.kernel) for row in rows if not row.failure)
    rows = [row for row in rows if not row.failure]
    if {problem.name for problem in chosen} - {problem for problem, _ in done}:
        machine = machine_of(backend, names, size)
        if out is not None:
            replace_file(out / _MACHINE, json_text.dumps(machine, indent=1))
        found = evaluate(
            chosen, backend, devices=names, predictor=learned, size=size, budget=budget, done=done
        )
        for row in progress(found, label="Measuring", quiet=json):
            rows.append(row)
            if out is not None:
                Journal(out / _ROWS).add(row.as_json())
            if json:
                print_json({key: value for key, value in row.as_json().items() if key != "overheads"})
            if time.monotonic() > until:
                break
    if out is not None:
        write_page(out, out)
        note(f"The page is {out / _PAGE}.")
    if not json:
        _print_efficiency(rows)


def write_page(stored: Path, out: Path) -> None:
    """Make the page and its curves from the rows that a folder holds, without the devices.

    Raises:
        UnreadableFile, MalformedInput: the folder does not hold what `efficiency` writes.
    """
    rows = [row for row in _read_rows(stored) if not row.failure]
    try:
        machine = json_text.loads((stored / _MACHINE).read_text())
    except OSError as error:
        raise UnreadableFile(f"Cannot read {stored / _MACHINE}: {error.strerror}") from error
    size = machine["instances"]
    command = (
        f"python -m reproduction efficiency{f' --{size}' if size != 'usual' else ''} --out {stored.name}"
    )
    remarks = (stored / _REMARKS).read_text() if (stored / _REMARKS).exists() else ""
    replace_file(out / _PAGE, page(rows, machine, command, remarks))
    replace_file(out / CURVES, curves(rows))


def machine_of(backend: OpenCLBackend, names: list[str] | None, size: str) -> dict[str, Any]:
    """What a page must say of where it was measured."""
    found = {
        info.id: f"{info.name} ({info.platform} {info.driver}, {info.compute_units} units)"
        for info in backend.devices()
        if names is None or info.id in names
    }
    return {
        **found, "processors": os.cpu_count(), "instances": size, "seed": 0, "apportion": __version__,
        "Python": platform.python_version(), "on": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip


def _read_rows(folder: Path) -> list[Row]:
    try:
        return [row_from(entry) for entry in Journal(folder / _ROWS).entries()]
    except (KeyError, TypeError) as error:
        raise MalformedInput(f"not a table of efficiencies ({error})", file=str(folder / _ROWS)) from error


def _print_efficiency(rows: list[Row]) -> None:
    print_table(
        ("kernel", "best alone, ms", "best cut, ms", "its share", "first launch", "third launch",
         "from the third on", "over best alone", ""),
        [
            (
                row.kernel,
                f"{min(measured.median for measured in row.alone.values()):.3f}" if row.alone else "",
                f"{row.oracle.median:.3f}" if row.oracle else "",
                f"{row.oracle_share:.3g}",
                f"{row.first_efficiency.median:.3f}" if row.first_efficiency else "",
                f"{row.efficiency.median:.3f}" if row.efficiency else "",
                f"{row.lasting_efficiency.median:.3f}" if row.lasting_efficiency else "",
                f"{row.lasting_against_best.median:.3f}" if row.lasting_against_best else "",
                row.failure or ("one device" if row.obstacle else ""),
            )
            for row in rows
        ],
        title="Efficiency: the best cut's time over the policy's",
        right=("best alone, ms", "best cut, ms", "its share", "first launch", "third launch",
               "from the third on", "over best alone"),
    )  # fmt: skip
