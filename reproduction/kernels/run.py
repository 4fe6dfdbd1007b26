"""`python -m reproduction device-mapping | load-balance | predictor`: kernel predictors compared, shipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.predictor import pairs
from apportion.cli.show import note, print_json, print_table
from apportion.data.artifact import read_description
from apportion.data.catalogue import check, dataset_called, instructions
from apportion.data.published.cgo17 import PAIRS
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.learn.shares.kernel_model import KernelModel
from apportion.learn.shares.kernel_table import KernelTable, read_cgo17
from apportion.learn.shares.share_data import ShareData
from apportion.learn.shares.share_forest_learner import ShareForestExperiment, ShareForestLearner
from apportion.learn.shares.shipping import IntervalCoverage, ship, ship_pair
from apportion.settings import load, replace_file
from apportion.weights import folder_of
from reproduction.ablation.page import table_42
from reproduction.ablation.run import ablation_data
from reproduction.ablation.scores import Score as NetworkScore
from reproduction.ablation.scores import scores as network_scores
from reproduction.ablation.units import Ablation
from reproduction.kernels.cross_validation import Comparison, Score, run
from reproduction.kernels.distribution import figure
from reproduction.kernels.page import COLUMNS, page


def device_mapping(
    *,
    settings: Path = Path("experiments/device-mapping-trees.toml"),
    data: Path | None = None,
    results: Path = Path("runs/reproduce/kernels.jsonl"),
    out: Path = Path("docs/results/device-mapping.md"),
    networks: Path = Path("runs/reproduce/ablation"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Cross-validate which device is faster, and write the page; what is finished is not run again.

    Args:
        settings: the experiment's TOML file.
        data: the folder of the CGO17 files; by default what `apportion data path cgo17` says.
        results: where finished folds are kept.
        out: where the page goes.
        networks: the folder of what `python -m reproduction ablation` finished, for Table 4.2's own network.
        json: print one line of JSON per predictor, pair and protocol.
    """
    _compare(settings, data, results, out, json, networks=networks)


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
    out: Path = Path("runs/models"),
    pair: str | None = None,
    measurements: Path | None = None,
    sources: Path | None = None,
    cpu: str = "cpu",
    gpu: str = "gpu",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make the models that `apportion predict` uses, and say how often their intervals hold.

    With --measurements, make that of a pair of devices that `apportion measure` has measured.

    Args:
        data: the folder of the CGO17 files; by default what `apportion data path cgo17` says.
        out: the folder in which each model gets a folder; `apportion predict --model` takes that.
        pair: of CGO17, the one to make, by default both; of a campaign, what to call its devices.
        measurements: a campaign's folder, or its Parquet file.
        sources: the folder of the kernels that were measured.
        cpu: the device whose share is learned: its id, or a part of its name.
        gpu: the other device.
        json: print one line of JSON per pair and confidence.
    """
    rows: list[tuple[object, ...]] = []
    if measurements is None:
        tables = _tables(data, PAIRS if pair is None else [pair])
        for name in tables:
            learner = ShareForestLearner(ShareForestExperiment(ShareData(name, data)))
            learner.train(out / name, resume=True)
            note(f"The forest without identity features, which answers by default, is in {out / name}")
        for name, table in tables.items():
            model, coverage = ship(table, vectorized=False, report=note)
            rows += _covered(name, model, coverage, model.save(out / f"{name}-recall"))
    else:
        if pair is None or sources is None:
            raise InvalidSetting("--measurements needs a name for the devices (--pair) and --sources")
        path, model, coverage = ship_pair(
            pair, measurements, sorted(sources.rglob("*.cl")), cpu=cpu, gpu=gpu, out=out, report=note
        )
        rows += _covered(pair, model, coverage, path)
    columns = ("pair", "held-out MAE", "confidence", "rows held", "applications held", "width", "file")
    if json:
        for row in rows:
            print_json(dict(zip(columns, row, strict=True)))
    else:
        print_table(columns, rows, right=columns[1:6])


def _covered(
    pair: str, model: KernelModel, coverage: Sequence[IntervalCoverage], path: Path
) -> list[tuple[object, ...]]:
    return [(pair, model.about["held_out_mae"], *vars(level).values(), path) for level in coverage]


def _compare(
    settings: Path, data: Path | None, results: Path, out: Path, json: bool, *, networks: Path | None = None
) -> None:
    comparison = load(Comparison, settings)
    tables = _tables(data, comparison.pairs)
    scores = run(comparison, tables, results, report=note)
    out.parent.mkdir(parents=True, exist_ok=True)
    figures, coverage = {}, {}
    if comparison.task == "load-balance":
        for name, table in tables.items():
            figures[name] = f"{out.stem}-{name}.svg"
            replace_file(out.parent / figures[name], figure(table))
        coverage = {
            name: read_description(folder_of(f"{name}-recall")).experiment["coverage"]
            for name in comparison.pairs
            if name in pairs()
        }
    trained = [] if networks is None else _table_42(tables, data, networks)
    text = page(comparison, tables, scores, coverage=coverage, figures=figures, networks=trained)
    replace_file(out, text)
    note(f"The page is {out}")
    if json:
        for score in scores:
            measures = {name: vars(value) for name, value in score.measures.items()}
            print_json({**vars(score), "measures": measures})
    else:
        _print(comparison, scores)


def _table_42(tables: dict[str, KernelTable], data: Path | None, folder: Path) -> list[str]:
    """The network that the table is about, as far as it was trained."""
    trained: list[NetworkScore] = []
    if folder.is_dir():
        plan = load(Ablation, Path("experiments/ablation.toml"))
        rows = tuple(row for row in plan.rows if "device-mapping" in row.forms)
        known = ablation_data(tables, data)
        trained = network_scores(replace(plan, rows=rows, averages=()), known, tables, folder, report=note)
    command = "`python -m reproduction ablation --form device-mapping`"
    if not trained:
        note(f"Table 4.2's network is not among what is finished in {folder}: {command} trains it")
        return ["## Table 4.2", "", f"Its network was not trained here: {command}, then this command again."]
    return [*table_42(trained), "", f"Trained by {command}; [how, and on what](ablation.md#how-it-was-made)."]


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
