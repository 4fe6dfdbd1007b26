"""`python -m reproduction dataflow`: train the networks of Table 4.1 on our corpus, and write the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table
from apportion.data.artifact import read_bytes
from apportion.errors import InvalidSetting
from apportion.jobs import LocalRunner
from apportion.settings import load, replace_file
from reproduction.dataflow.page import page, summaries
from reproduction.dataflow.ship import score_shipped, shipped_scores
from reproduction.dataflow.ship import ship as ship_best
from reproduction.dataflow.table import Labels, TablePlan, finished, train_rest


def dataflow(
    *only: str,
    store: Path | None = None,
    exact_store: Path | None = None,
    settings: Path = Path("experiments/reproduce-dataflow.toml"),
    runs: Path = Path("runs/dataflow"),
    out: Path = Path("docs/results/dataflow.md"),
    jobs: int = 1,
    seconds: float = 0.0,
    ship: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train the networks that are not trained yet, and write the page of all that are.

    Args:
        only: experiments to train, for example dataflow-liveness-exact; by default all of the plan.
        store: the dataset with the reference's labels; without any dataset nothing is trained.
        exact_store: the dataset with exact labels.
        settings: the plan.
        runs: where each run has its folder.
        out: where the page goes.
        jobs: how many runs go on at once; some share a GPU well.
        seconds: training ends by then; what comes late has less time. 0 for no end.
        ship: the folder of the package's networks (src/apportion/weights); of each analysis the run
            that did best on validation goes there, if the network that is there did worse on the same. What
            ships then is tested on the dataset, and stands on the page.
        json: print one line of JSON per row.
    """
    plan = load(TablePlan, settings)
    stores: dict[Labels, Path] = {}
    if store is not None:
        stores["reference"] = store
    if exact_store is not None:
        stores["exact"] = exact_store
    if stores:
        trained = replace(plan, rows=tuple(row for row in plan.rows if row.labels in stores))
        train_rest(
            trained, stores, runs, LocalRunner(workers=jobs),
            experiments=settings.parent, only=only, seconds=seconds, say=note,
        )  # fmt: skip
    ended = finished(plan, runs)
    if not ended:
        raise InvalidSetting(
            f"{runs} holds no finished run of {settings}. Name a dataset to train on with --store or "
            "--exact-store; `apportion dataset dataflow` makes one."
        )
    if ship is not None:
        choices = ship_best(ended, runs, ship, stores)
        for task, choice in choices.items():
            note(f"{task}: {choice}")
        score_shipped(choices, ended, runs, ship, stores)
    out.parent.mkdir(parents=True, exist_ok=True)
    remarks = read_bytes(settings.parent / plan.remarks).decode() if plan.remarks else ""
    replace_file(out, page(plan, ended, shipped_scores(runs), remarks))
    note(f"{len(ended)} of {len(plan.runs())} runs are finished. The page is {out}")
    if json:
        for row in summaries(plan, ended):
            print_json(row)
        return
    columns = ("task", "runs", "F1", "precision", "recall", "goal")
    rows = [
        (row["name"], row["runs"], *(f"{row[name]:.4f}" for name in ("f1", "precision", "recall")),
         "" if row["goal"] is None else f"{row['goal']:.2f} {'met' if row['met'] else 'missed'}")
        for row in summaries(plan, ended)
    ]  # fmt: skip
    print_table(columns, rows, right=columns[1:5])
