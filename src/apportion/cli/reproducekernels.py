"""`apportion reproduce device-mapping | load-balance | predictor`: compare kernel predictors, ship them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.predictor import WEIGHTS
from apportion.cli.show import note, print_json, print_table
from apportion.data.catalogue import check, dataset_called, instructions
from apportion.data.published.cgo17 import PAIRS
from apportion.errors import UnreadableFile
from apportion.settings import load
from apportion.train.crossvalidate import Comparison, Score, run
from apportion.train.kernelpage import COLUMNS, page
from apportion.train.kerneltable import KernelTable, read_cgo17
from apportion.train.ship import ship


def device_mapping(
    *,
    settings: Path = Path("experiments/device-mapping-trees.toml"),
    data: Path | None = None,
    results: Path = Path("runs/reproduce/kernels.jsonl"),
    out: Path = Path("docs/results/device-mapping.md"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Cross-validate which device is faster, and write the page; what is finished is not run again.

    Args:
        settings: the experiment's TOML file.
        data: the folder of the CGO17 files; by default what `apportion data path cgo17` says.
        results: where finished folds are kept.
        out: where the page goes.
        json: print one line of JSON per predictor, pair and protocol.
    """
    _compare(settings, data, results, out, json)


def load_balance(
    *,
    settings: Path = Path("experiments/load-balance-trees.toml"),
    data: Path | None = None,
    results: Path = Path("runs/reproduce/kernels.jsonl"),
    out: Path = Path("docs/results/load-balance.md"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Cross-validate the CPU's share of the work, and write the page; what is finished is not run again.

    Args:
        settings: the experiment's TOML file.
        data: the folder of the CGO17 files; by default what `apportion data path cgo17` says.
        results: where finished folds are kept.
        out: where the page goes.
        json: print one line of JSON per predictor, pair and protocol.
    """
    _compare(settings, data, results, out, json)


def predictor(
    *,
    data: Path | None = None,
    out: Path = WEIGHTS,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make the models that `apportion predict` uses, and say how often their intervals hold.

    Args:
        data: the folder of the CGO17 files; by default what `apportion data path cgo17` says.
        out: the folder of the models.
        json: print one line of JSON per pair.
    """
    _ship(data, out, json)


def _compare(settings: Path, data: Path | None, results: Path, out: Path, json: bool) -> None:
    comparison = load(Comparison, settings)
    tables = _tables(data, comparison.pairs)
    scores = run(comparison, tables, results, report=note)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(comparison, tables, scores))
    note(f"The page is {out}")
    if json:
        for score in scores:
            measures = {name: vars(value) for name, value in score.measures.items()}
            print_json({**vars(score), "measures": measures})
    else:
        _print(comparison, scores)


def _print(comparison: Comparison, scores: Sequence[Score]) -> None:
    measure = "accuracy" if comparison.task == "device-mapping" else "mae"
    for pair in comparison.pairs:
        chosen = [score for score in scores if score.pair == pair]
        rows = [
            (row, *(f"{s.measures[measure].value:.3f}" for s in chosen if s.row == row))
            for row in dict.fromkeys(score.row for score in chosen)
        ]
        columns = ("predictor", *(COLUMNS[protocol] for protocol in comparison.repetitions))
        print_table(columns, rows, title=f"{measure}, {pair}", right=columns[1:])


def _tables(data: Path | None, pairs: Iterable[str]) -> dict[str, KernelTable]:
    dataset = dataset_called("cgo17")
    for condition in check(dataset, data):
        if condition.state != "good":
            raise UnreadableFile(
                f"{condition.path}: {condition.state}. To get it, {instructions(condition)}."
            )
    tables = {pair: read_cgo17(data or dataset.folder, pair) for pair in pairs}
    for pair, table in tables.items():
        note(f"{pair}: {len(table.examples)} of {table.rows_published} rows have IR and are used")
    return tables


def _ship(data: Path | None, folder: Path, json: bool) -> None:
    rows = []
    for pair, table in _tables(data, PAIRS).items():
        model, coverage = ship(table, report=note)
        path = model.save(folder)
        rows.append((pair, model.about["held_out_mae"], *vars(coverage).values(), path))
    columns = ("pair", "held-out MAE", "confidence", "rows held", "applications held", "width", "file")
    if json:
        for row in rows:
            print_json(dict(zip(columns, row, strict=True)))
    else:
        print_table(columns, rows, right=columns[1:6])
