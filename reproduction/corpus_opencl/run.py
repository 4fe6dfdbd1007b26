"""`python -m reproduction corpus-opencl`: kernels of published packages, and how far each comes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from apportion.cli.show import note, progress
from apportion.errors import InvalidSetting
from apportion.jobs import LocalRunner
from apportion.jobs.journal import Journal
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.settings import replace_file
from reproduction.corpus_opencl.packages import Package, fetch, packages
from reproduction.corpus_opencl.page import page
from reproduction.corpus_opencl.stages import KernelRow, ran, rows_of
from reproduction.stored import keep, kept

_SEED = 21
"""Draws the kernels that are run. What kept kernels of the draws with 19 and 20 from running was mended, so
that they say nothing any more of kernels that nobody has looked at."""
_ANEW = {"gputools": 22, "lammps": 22}
"Packages whose draw with the seed above showed faults that were mended while it went on: drawn anew."
STORED = Path(__file__).with_name("stored.json.gz")
REMARKS = Path(__file__).with_name("remarks.md")
"What must be known of the run that the page stands on; the page holds it."


def corpus_opencl(
    *,
    folder: Path = Path("/tmp/corpus-opencl"),
    out: Path = Path("docs/results/corpus-opencl.md"),
    runs: int = 150,
    deadline: float = 20.0,
    processes: int = 1,
    offline: bool = False,
    stored: bool = False,
) -> None:
    """Compile, read, predict and run kernels that packages of Debian and PyPI hold, and write the page.

    Args:
        folder: where packages are kept, and a journal of what is done: a later run goes on with it.
        out: where the page goes.
        runs: how many of the kernels that can be shared are run, drawn evenly from the packages.
        deadline: of one launch.
        processes: how many files are compiled at once.
        offline: fetch nothing.
        stored: make the page again from what the last run stored in the repository, and do nothing else.
    """
    if stored:
        _write_page(out)
        return
    if not offline:
        for name, said in fetch(folder):
            note(f"{name}: {said}")
    known = [package for package in packages(folder) if package.files()]
    if not known:
        raise InvalidSetting(f"There is no package with OpenCL C in {folder}")
    journal = Journal(folder / "rows.jsonl", sync=False)
    rows = _read(journal)
    done = {(row.package, row.file) for row in rows}
    left = [(package, path) for package in known for path in package.files()]
    left = [
        (package, path)
        for package, path in left
        if (package.name, str(path.relative_to(package.root))) not in done
    ]
    runner = LocalRunner(processes, deadline_seconds=400)
    with journal.alone():
        outcomes = runner.map(partial(_one), left)
        for outcome in progress(outcomes, label="Compiling", total=len(left)):
            package, path = left[outcome.item_index]
            failed = KernelRow(
                package.name, str(path.relative_to(package.root)), unread=package.kernels_in(path),
                reason=str(outcome.error),
            )  # fmt: skip
            for row in outcome.value or [failed]:
                journal.add(asdict(row))
                rows.append(row)
    by_name = {package.name: package for package in known}
    rows = _run_some(rows, by_name, Journal(folder / "ran.jsonl", sync=False), runs, deadline)
    keep(
        STORED,
        {
            "packages": [[each.name, each.origin, each.version, each.held_out] for each in known],
            "rows": [asdict(row) for row in rows],
        },
    )
    _write_page(out)


def _write_page(out: Path) -> None:
    found = kept(STORED, made_by="python -m reproduction corpus-opencl")
    known = [
        Package(name, origin, version, Path(), "", held_out=held_out)
        for name, origin, version, held_out in found["packages"]
    ]
    rows = [KernelRow(**row) for row in found["rows"]]
    replace_file(out, page(rows, known, REMARKS.read_text() if REMARKS.is_file() else ""))
    note(f"The page is {out}")


def _one(item: tuple[Package, Path]) -> list[KernelRow]:
    return rows_of(*item)


def _run_some(
    rows: list[KernelRow], known: dict[str, Package], journal: Journal, runs: int, deadline: float
) -> list[KernelRow]:
    """The rows, those that were drawn with what came of running them."""
    ran_before = {(row.package, row.file, row.kernel): row for row in _read(journal)}
    drawn = list(_drawn([row for row in rows if row.splittable and row.predicted], runs))
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False)
    with OpenCLBackend(drivers, Limits(seconds=deadline)) as backend, journal.alone():
        for row in progress(drawn, label="Running", total=len(drawn)):
            key = (row.package, row.file, row.kernel)
            if key not in ran_before:
                ran_before[key] = ran(known[row.package], row, backend)
                journal.add(asdict(ran_before[key]))
    return [ran_before.get((row.package, row.file, row.kernel), row) for row in rows]


def _drawn(rows: list[KernelRow], count: int) -> Iterator[KernelRow]:
    """Kernels in turn from every package, those of a package in an order that the seed decides."""
    waiting = {
        name: [row for row in rows if row.package == name] for name in sorted({row.package for row in rows})
    }
    for name, each in waiting.items():
        random.Random(f"{_ANEW.get(name, _SEED)} {name}").shuffle(each)
    while count > 0 and any(waiting.values()):
        for each in waiting.values():
            if each and count > 0:
                count -= 1
                yield each.pop()


def _read(journal: Journal) -> list[KernelRow]:
    return [KernelRow(**entry) for entry in journal.entries()]
