"""`python -m reproduction ablation`: the networks of the thesis' Chapter 5, trained again and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table
from apportion.data.catalogue import check, dataset_called, instructions
from apportion.data.published.cgo17 import PAIRS
from apportion.errors import UnreadableFile
from apportion.jobs import LocalRunner
from apportion.learn.shares.kernel_table import KernelTable, read_cgo17
from apportion.program.vocabulary import Vocabulary
from apportion.settings import load
from reproduction.ablation.page import write_page
from reproduction.ablation.rows import AblationData, data_of, pack, unpack
from reproduction.ablation.scores import Score, scores
from reproduction.ablation.units import Ablation, run_over, run_units, shared_out, time_forward, units_of
from reproduction.worker import shared_by

_VOCABULARY = Path("programl-vocabulary.csv")


def ablation(
    *,
    settings: Path = Path("experiments/ablation.toml"),
    folds: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    rows: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    form: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    device: Literal["cpu", "cuda"] = "cpu",
    out: Path = Path("runs/reproduce/ablation"),
    page: Path = Path("docs/results/ablation.md"),
    data: Path | None = None,
    pack_to: Path | None = None,
    packed: Path | None = None,
    worker: str = "1/1",
    jobs: int = 1,
    stack: int = 0,
    seconds: float = 0.0,
    only: Literal["all", "train", "time", "page"] = "all",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train every network of the ablation, time it, and write the page; what is finished is not run again.

    Args:
        settings: the experiment's TOML file: rows, sizes, batches.
        folds: the protocols to run, by default those that each row names.
        rows: the rows to run, by default all.
        form: classification, regression or device-mapping; by default all.
        device: where to train.
        out: the folder of what is finished, a file for each unit.
        page: where the page goes; its figures stand beside it.
        data: the folder of the CGO17 files; by default what `apportion data path cgo17` says.
        pack_to: write graphs and labels to this file, for a machine without the dataset, and stop.
        packed: read them from such a file; then there are no classical rows, and so no page.
        worker: I/N: this is one of N processes that share the units.
        jobs: how many worker processes this one starts; some share a GPU well.
        stack: at most so many folds are trained side by side; a unit is a stack, and what an interruption
            costs. 1 is fold by fold, more are faster; by default what the settings say (ten folds at once).
            Give the same to every call on one folder.
        seconds: begin no unit after so long; 0 for no limit.
        only: train alone, time forward passes alone, or write the page of what there is.
        json: print one line of JSON per row, form, budget and protocol.
    """
    plan = load(Ablation, settings).stacked(stack)
    tables = {} if packed else _tables(data)
    known = unpack(packed) if packed else ablation_data(tables, data)
    if pack_to is not None:
        pack(known, pack_to)
        note(f"{pack_to}: {pack_to.stat().st_size:,} bytes")
        return
    if only in ("all", "train"):
        units = units_of(plan, known, protocols=folds or (), rows=rows or (), forms=form or ())
        mine = shared_out(units, *shared_by(worker))
        if jobs == 1:
            run_units(plan, known, mine, out, device=device, report=note, seconds=seconds)
        else:
            out.mkdir(parents=True, exist_ok=True)
            file = packed or out / "kernels.npz"
            if packed is None:
                pack(known, file)
            run_over(
                LocalRunner(workers=jobs), plan, file, mine, out, device=device, report=note, seconds=seconds
            )
    if only in ("all", "time"):
        time_forward(plan, known, out, device=device, report=note)
    if packed or only in ("train", "time"):
        return
    found = scores(plan, known, tables, out, report=note)
    write_page(plan, known, tables, found, out, page)
    note(f"The page is {page}")
    _print(found, json)


def _print(found: list[Score], json: bool) -> None:
    if json:
        for score in found:
            print_json(score)
        return
    columns = ("row", "form", "budget", "folds", "score", "95 % interval")
    lines = [
        (s.row, s.form, s.budget, s.protocol, f"{s.main.value:.3f}", f"{s.main.low:.3f} to {s.main.high:.3f}")
        for s in found
    ]
    print_table(columns, lines, right=columns[4:])


def _tables(data: Path | None) -> dict[str, KernelTable]:
    dataset = dataset_called("cgo17")
    for condition in check(dataset, data):
        if condition.state != "good":
            raise UnreadableFile(
                f"{condition.path}: {condition.state}. To get it, {instructions(condition)}."
            )
    return {pair: read_cgo17(data or dataset.folder, pair) for pair in PAIRS}


def ablation_data(tables: dict[str, KernelTable], data: Path | None) -> AblationData:
    """Graphs and labels as networks see them, of the tables read from a folder."""
    folder = data or dataset_called("cgo17").folder
    found = data_of(tables, Vocabulary.read(folder.parent / _VOCABULARY))
    used = f"{len(found.graph)} of {found.rows_published} rows have IR and are used"
    note(f"{used}: {found.graphs.graphs} graphs")
    return found
