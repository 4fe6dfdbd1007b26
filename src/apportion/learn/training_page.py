"""The page of a training: scores, curves and settings in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apportion.report import html
from apportion.report.charts import curves
from apportion.report.numbers import with_interval
from apportion.report.tabular import html_table

_METRICS = ("f1", "precision", "recall", "accuracy")


def dataflow_page(
    described: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], result: Mapping[str, Any]
) -> str:
    """The page of a data-flow model: test scores over all, and by the steps of the exact analysis."""
    test = result["test"]
    scores = [] if test is None else [[f"{test['examples']:,}", *_scores(test)]]
    buckets = [
        [
            f"{row['first']} to {row['last'] if row['last'] < 10**9 else '…'}",
            f"{row['examples']:,}",
            *_scores(row),
        ]
        for row in result["by_steps"]
    ]
    tables = [
        html.heading("Test examples"),
        html_table(["examples", *_METRICS], scores, align="r"),
        html.heading("By steps of the exact analysis"),
        html_table(["steps", "examples", *_METRICS], buckets, align="lr"),
    ]
    return _page(result["task"], tables, rows, {"F1 on the validation examples": "validation_f1"}, described)


def ranking_page(
    described: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], result: Mapping[str, Any]
) -> str:
    """The page of a ranker: measures of each collection, and of each graph."""
    measures = [
        [name, entry["graphs"], f"{entry['pairs']:,}", measure, with_interval(value, ".4f")]
        for name, entry in result["evaluation"]["collections"].items()
        for measure, value in entry["measures"].items()
    ]
    graphs = [
        [
            graph["name"],
            f"{graph['pairs']:,}",
            *(f"{graph['measures'][name]:.4f}" for name in ("tau_b", "opa")),
        ]
        for graph in result["graphs"]
    ]
    tables = [
        html.heading("Collections"),
        html_table(
            ["collection", "graphs", "pairs", "measure", "mean (95 % over graphs)"], measures, align="lrrlr"
        ),
        html.heading("Graphs"),
        html_table(["graph", "pairs", "tau-b", "OPA"], graphs, align="lr"),
    ]
    title = f"Ranking configurations: {described['settings']['model']}"
    return _page(title, tables, rows, {"Tau-b on the validation graphs": "validation_tau_b"}, described)


def _page(
    title: str,
    tables: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    scores: Mapping[str, str],
    described: Mapping[str, Any],
) -> str:
    """Tables, the loss and the scores (caption → column) over training steps, settings."""
    drawn = []
    for caption, column in {"Loss": "loss", **scores}.items():
        points = [(row["step"], row[column]) for row in rows if column in row]
        chart = curves({caption: points}, across="training steps", up=caption, from_zero=False)
        drawn.append(html.figure(chart))
    settings = html_table(["setting", "value"], _flat(described))
    return html.page(title, [*tables, html.heading("Training"), *drawn, html.heading("Settings"), settings])


def _scores(found: Mapping[str, Any]) -> list[str]:
    return [with_interval(found[name], ".4f") for name in _METRICS]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return rows
