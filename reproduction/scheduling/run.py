"""`python -m reproduction scheduling`: the three pages about scheduling, from stored measurements or new
ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note
from apportion.errors import UnreadableFile
from apportion.settings import replace_file
from reproduction.scheduling.page import pages
from reproduction.scheduling.study import study
from reproduction.stored import keep, kept

STORED = Path(__file__).parent / "stored.json.gz"
MADE_BY = "python -m reproduction scheduling --measure"


def scheduling(
    *,
    measure: Annotated[bool, Parameter(negative="")] = False,
    only: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    data: Path = Path("../shared/data/gavel"),
    programs: Path = Path("experiments/programs.parquet"),
    jobs: int = 50_000,
    seeds: int = 20,
    stored: Path = STORED,
    out: Path = Path("docs/results"),
) -> None:
    """Write the results pages about scheduling.

    Args:
        measure: measure again and store that, instead of reading what is stored; some minutes.
        only: with --measure, the parts to measure again, such as parity or rounds; the others stay as
            they are stored.
        data: Gavel's throughputs, traces and results; needed to measure.
        programs: the table of our own programs, by `python -m reproduction collect programs`; where it
            is not there, it is left out.
        jobs: drawn from measured runs.
        seeds: draws of the errors of predictions.
        stored: where the measurements are kept.
        out: the folder of the pages.
    """
    if measure:
        if not (data / "given.json").exists():
            raise UnreadableFile(f"Gavel's reference data is not in {data}. Name its folder with --data")
        before = kept(stored, made_by=MADE_BY) if only else None
        found = study(
            data, programs=programs, jobs=jobs, seeds=seeds, say=note, only=only or (), before=before
        )
        keep(stored, found)
    found = kept(stored, made_by=MADE_BY)
    for name, text in pages(found).items():
        replace_file(out / name, text.encode())
        note(f"{out / name}")
