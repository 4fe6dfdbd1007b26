"""`python -m reproduction energy`: time and power of the bundled kernels under cuts of their work."""

from __future__ import annotations

import json as json_text
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.learned_policy import learned
from apportion.cli.show import note, progress
from apportion.jobs.journal import Journal
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.settings import replace_file
from apportion.suite import PROBLEMS, problem_of
from reproduction.efficiency.run import machine_of
from reproduction.energy.measure import machine_power, measured, row_from

_FLAG = Parameter(negative="")
_ROWS, _MACHINE = "energy.jsonl", "energy-machine.json"


def energy(
    *problems: str,
    devices: str | None = None,
    small: Annotated[bool, _FLAG] = False,
    large: Annotated[bool, _FLAG] = False,
    total: float | None = None,
    threads: int | None = None,
    out: Path,
) -> None:
    """Measure what launches of each bundled kernel take and draw under cuts of their work.

    Rows are written as they come, and the same command continues after an interruption.

    Args:
        problems: names of problems; all when none is given.
        devices: ids of devices, with commas between them; all when not given.
        small: small instances, to try the command only.
        large: instances that keep a fast device busy for some milliseconds.
        total: seconds after which no further kernel is begun.
        threads: threads of each CPU device.
        out: the folder for the rows.
    """
    chosen = [problem_of(name) for name in problems] or list(PROBLEMS.values())
    size = "small" if small else "large" if large else "usual"
    until = float("inf") if total is None else time.monotonic() + total
    names = devices.split(",") if devices else None
    out.mkdir(parents=True, exist_ok=True)
    journal = Journal(out / _ROWS)
    rows = [row_from(entry) for entry in journal.entries()]
    done = frozenset((row.problem, row.kernel) for row in rows if not row.failure)
    with OpenCLBackend(DriverOptions(threads=threads), Limits(seconds=60.0)) as backend:
        machine = {**machine_of(backend, names, size), **machine_power()}
        replace_file(out / _MACHINE, json_text.dumps(machine, indent=1))
        note(f"Meters: {', '.join(machine['meters']) or 'none that this process may read'}.")
        found = measured(chosen, backend, devices=names, predictor=learned, size=size, until=until, done=done)
        for row in progress(found, label="Measuring"):
            journal.add(row.as_json())
            said = row.failure or ", ".join(
                f"{cut.share:g}: {cut.seconds * 1e3:.3g} ms {sum(cut.watts.values()):.0f} W"
                for cut in row.cuts
            )
            note(f"{row.problem} {row.kernel}: {said}")
