"""`python -m reproduction unseen`: the shipped models on kernels never seen, beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.predictor import pairs
from apportion.advise.queries import read_queries
from apportion.cli.show import note, print_json, print_table
from apportion.data.catalogue import dataset_called
from apportion.errors import InvalidSetting
from apportion.settings import replace_file
from reproduction.unseen.scores import SHARE, evaluate, levels, page


def unseen(
    *,
    measured: Path = Path("experiments/unseen-chai.csv"),
    data: Path | None = None,
    pair: Annotated[tuple[str, ...], Parameter(negative="")] = (
        "cgo17-nvidia",
        "cgo17-amd",
        "gnn-load-balance",
        "gnn-load-balance-classes",
    ),
    out: Path = Path("docs/results/unseen.md"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Predict kernels whose shares were measured elsewhere (thesis, Table 5.3), and write the page.

    Args:
        measured: a CSV file with the columns source, local_size, bytes and cpu_share, from 0 to 1.
        data: the folder of the sources, if they are not beside the file; by default what `apportion data
            path chai` says, or ../shared/data/chai.
        pair: of devices whose models answer, or names of models.
        out: where the page goes.
        json: print one line of JSON per predictor.
    """
    kept = dataset_called("chai").folder
    folder = data or (kept if any(kept.glob("*.ll")) else Path("../shared/data/chai"))
    rows = read_queries(measured, folder=folder if folder.is_dir() else None, needed=(SHARE,))
    if not rows:
        raise InvalidSetting(f"{measured} has no line to predict")
    found, left = {}, []
    for name in pair or pairs():
        found[name], reasons = evaluate(rows, name)
        left += [reason for reason in reasons if reason not in left]
    for reason in left:
        note(f"Left out: {reason}")
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page(found, left, measured))
    note(f"The page is {out}")
    for name, kernels in found.items():
        reached = levels(kernels, name)
        if json:
            for level in reached:
                print_json({"pair": name, **vars(level)})
        else:
            lines = [(one.name, f"{one.mae:.3f}", one.within_20, one.within_10) for one in reached]
            columns = ("predictor", "mean error", "within 0.20", "within 0.10")
            print_table(columns, lines, title=f"{name}, {len(kernels)} kernels", right=columns[1:])
