"""`python -m reproduction energy`: what cuts of the bundled kernels take and draw, and the page about it."""

from __future__ import annotations

import json as json_text
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.learned_policy import learned
from apportion.cli.show import note, progress
from apportion.data.artifact import read_bytes
from apportion.jobs.journal import Journal
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.settings import replace_file
from apportion.suite import PROBLEMS, problem_of
from reproduction.efficiency.run import machine_of
from reproduction.energy.measure import machine_power, measured, row_from
from reproduction.energy.page import page as page_of
from reproduction.stored import keep, kept

_FLAG = Parameter(negative="")
STORED = Path(__file__).with_name("stored.json.gz")
_ROWS, _MACHINE = "energy.jsonl", "energy-machine.json"


def energy(
    *problems: str,
    devices: str | None = None,
    small: Annotated[bool, _FLAG] = False,
    large: Annotated[bool, _FLAG] = False,
    total: float | None = None,
    threads: int | None = None,
    out: Path | None = None,
    take: Path | None = None,
    page: Path = Path("docs/results/energy.md"),
) -> None:
    """Write the page about energy from what is stored; with --out, measure instead.

    Measured is what launches of each bundled kernel take and draw under cuts of their work. Rows are written
    as they come, and the same command continues after an interruption.

    Args:
        problems: names of problems; all when none is given.
        devices: ids of devices, with commas between them; all when not given.
        small: small instances, to try the command only.
        large: instances that keep a fast device busy for some milliseconds.
        total: seconds after which no further kernel is begun.
        threads: threads of each CPU device.
        out: measure, and write rows into this folder.
        take: a folder with such rows: store them, and write the page.
        page: where the page goes.
    """
    if out is None:
        _write_page(take, page)
        return
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


def _write_page(take: Path | None, page: Path) -> None:
    if take is not None:
        machine = json_text.loads(read_bytes(take / _MACHINE))
        keep(STORED, {"machine": machine, "rows": Journal(take / _ROWS).entries()})
    found = kept(STORED, made_by="tools/lent-programs.sh, then python -m reproduction energy --take FOLDER")
    replace_file(page, page_of(found).encode())
    note(f"The page is {page}")
