"""`python -m reproduction programs`: the page about programs, from stored measurements or new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note
from apportion.settings import replace_file
from reproduction.programs.page import page
from reproduction.programs.results import joined, read_results
from reproduction.stored import keep, kept

STORED = Path(__file__).with_name("stored.json.gz")
REMARKS = Path(__file__).with_name("remarks.md")
"What must be known of the runs that the page stands on; the page holds it."


def programs(
    *,
    take: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    out: Path = Path("docs/results/programs.md"),
) -> None:
    """Write the page about programs of many kernels beside their peers.

    Args:
        take: folders with what `tools/lent-programs.sh` brought back, unpacked: store that first. What a
            later one measured again takes the place of what an earlier one did.
        out: where the page goes.
    """
    if take:
        keep(STORED, joined([read_results(folder) for folder in take]))
    found = kept(STORED, made_by="tools/lent-programs.sh, then python -m reproduction programs --take FOLDER")
    replace_file(out, page(found, REMARKS.read_text() if REMARKS.is_file() else "").encode())
    note(f"The page is {out}")
