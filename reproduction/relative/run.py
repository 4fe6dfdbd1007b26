"""`python -m reproduction relative-performance`: the published table and figures, made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table
from apportion.data.catalogue import check, dataset_called, instructions
from apportion.data.counter_table import AIWC, CounterTable, System
from apportion.data.published.aiwc import read, with_graphs
from apportion.errors import UnknownName, UnreadableFile
from apportion.learn.base import list_again
from apportion.learn.relative.performance import MEASURES, as_json
from apportion.learn.relative.relative_model import UNFAMILIAR
from apportion.learn.relative.relative_shipping import model_of, trust_of
from apportion.learn.relative.relative_table import RelativeTable, table_of
from apportion.settings import load, replace_file
from apportion.weights import WEIGHTS
from reproduction.relative.comparison import PROTOCOLS, Comparison, run, scores
from reproduction.relative.few_runs import few_samples
from reproduction.relative.page import Set, page
from reproduction.relative.stacked_rows import stacked_scores


def relative_performance(
    *,
    settings: Path = Path("experiments/relative-performance.toml"),
    data: Path | None = None,
    graphs: Path = Path("experiments/aiwc-graphs.csv"),
    measured: Path | None = None,
    profiled: str | None = None,
    results: Path = Path("runs/reproduce/relative-performance.jsonl"),
    out: Path = Path("docs/results/relative-performance.md"),
    networks: bool = True,
    ship: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compare predictors of relative performance on AIWC, and on your own runs.

    What is finished is not run again.

    Args:
        settings: the experiment's TOML file.
        data: the folder of the AIWC files; by default what `apportion data path aiwc` says.
        graphs: what the program graphs of AIWC's kernels are made of; without the file, rows that need them
            are left out.
        measured: a table of counters with AIWC's columns and times on your own systems; the stages of the
            network are taken apart on AIWC alone.
        profiled: the system of `measured` on which runs are timed; by default its first.
        results: where finished folds are kept.
        out: where the page goes; its figures go to a folder of the same name beside it.
        networks: train networks on `measured`, too: of 600 runs a core takes 40 s for a fold, an hour in all.
        ship: write the model that `apportion relative predict` uses, too.
        json: print one line of JSON per predictor and split.
    """
    comparison = load(Comparison, settings)
    everything = _aiwc(data, graphs)
    source = CounterTable.read(measured) if measured else None
    own = table_of(source, name=measured.stem, counters=AIWC) if measured and source else None
    if own and profiled and profiled not in own.systems:
        raise UnknownName("system", profiled, own.systems)
    sets = {"aiwc": _set("AIWC, four systems", comparison, everything, results)}
    model = model_of(everything, systems=comparison.systems, profiled=comparison.profiled)
    trust = trust_of(model, systems=comparison.systems, profiled=comparison.profiled, unfamiliar=UNFAMILIAR)
    sets["aiwc"] = replace(sets["aiwc"], few=few_samples(everything, report=note), trust=trust)
    if ship:
        model.save(WEIGHTS / "relative-aiwc")
        list_again(WEIGHTS)
        note(f"The model is in {WEIGHTS / 'relative-aiwc'}")
    if own:
        asked = comparison.without_stages()
        asked = asked if networks else asked.without_networks()
        mine = _on(own, asked, profiled or own.systems[0])
        words = "; ".join(f"{name}: {system.description['name']}" for name, system in _named(source))
        sets["own"] = replace(_set("Runs of our own", mine, own, results), hardware=words)
    text, figures = page(sets, out.stem)
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in figures.items():
        replace_file(folder / name, svg)
    replace_file(out, text)
    note(f"The page is {out}")
    _print(sets, json)


def _named(source: CounterTable | None) -> list[tuple[str, System]]:
    """The systems of a table that say what they are."""
    return (
        [(name, one) for name, one in source.systems.items() if "name" in one.description] if source else []
    )


def _on(table: RelativeTable, comparison: Comparison, profiled: str) -> Comparison:
    """The same comparison on another table; the second time is of another kind of system, if there is one."""
    kinds = dict(zip(table.systems, table.kinds, strict=True))
    others = sorted(
        set(table.systems) - {profiled}, key=lambda name: (kinds[name] == kinds[profiled], name)
    )  # fmt: skip
    second = others[0] if comparison.second else ""
    return replace(comparison, systems=table.systems, profiled=profiled, second=second)


def _set(title: str, comparison: Comparison, everything: RelativeTable, results: Path) -> Set:
    note(f"{everything.name}: {len(everything.runs)} runs, {everything.left_out} incomplete")
    comparison = comparison.about(everything)
    answers = run(comparison, everything, results, report=note)
    return Set(title, comparison, everything, answers, stacked_scores(everything.on(comparison.systems)))


def _aiwc(data: Path | None, graphs: Path) -> RelativeTable:
    dataset = dataset_called("aiwc")
    for condition in check(dataset, data):
        if condition.state == "missing":
            raise UnreadableFile(
                f"{condition.path}: {condition.state}. To get it, {instructions(condition)}."
            )
        if condition.state != "good":  # exported anew, a file never has the same bytes
            note(f"{condition.path}: {condition.state}; the page tells the fingerprint of what it holds.")
    source = read(data or dataset.folder)
    return table_of(
        with_graphs(source, graphs) if graphs.exists() else source, name="aiwc", counters=AIWC
    )  # fmt: skip


def _print(sets: dict[str, Set], json: bool) -> None:
    for short, one in sets.items():
        for protocol in PROTOCOLS:
            found = {a.row: scores(a, one.table, samples=200) for a in one.answers if a.protocol == protocol}
            if json:
                for row, measures in found.items():
                    print_json({"set": short, "split": protocol, "row": row, **as_json(measures)})
                continue
            rows = [(row, *(f"{measures[m].value:.2f}" for m in MEASURES)) for row, measures in found.items()]
            print_table(("predictor", *MEASURES), rows, title=f"{one.title}, {protocol}", right=MEASURES)
