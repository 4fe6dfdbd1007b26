"""`python -m reproduction programs`: the page about programs, from stored measurements or new ones."""

from __future__ import annotations

from pathlib import Path

from apportion.cli.show import note
from apportion.settings import replace_file
from reproduction.programs.page import page
from reproduction.programs.results import read_results
from reproduction.stored import keep, kept

STORED = Path(__file__).with_name("stored.json.gz")


def programs(*, take: Path | None = None, out: Path = Path("docs/results/programs.md")) -> None:
    """Write the page about programs of many kernels beside their peers.

    Args:
        take: a folder with what `tools/lent-programs.sh` brought back: store that first.
        out: where the page goes.
    """
    if take is not None:
        keep(STORED, read_results(take))
    found = kept(STORED, made_by="tools/lent-programs.sh, then python -m reproduction programs --take FOLDER")
    replace_file(out, page(found).encode())
    note(f"The page is {out}")
