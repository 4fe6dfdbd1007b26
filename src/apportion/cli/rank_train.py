"""`apportion rank train` and `apportion rank evaluate`: rankers made, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table, progress
from apportion.data.configurations import ConfigurationStore
from apportion.errors import InvalidSetting
from apportion.learn.learner import learner_of
from apportion.learn.metrics import Interval
from apportion.learn.ranking.network_scores import scorer_of
from apportion.learn.ranking.rank_learner import RankLearner
from apportion.learn.ranking.ranking_run import run_ranking
from apportion.learn.ranking.rankings import RankedGraph, rank_graphs, summary

_Json = Annotated[bool, Parameter(negative="")]
_Flag = Annotated[bool, Parameter(negative="")]


def train(
    experiment: Path,
    *,
    data: Path | None = None,
    out: Path | None = None,
    seeds: int = 1,
    resume: _Flag = False,
    json: _Json = False,
) -> None:
    """Train a ranker from an experiment file, once for each seed, and evaluate it.

    Parameters
    ----------
    experiment
        A TOML file, like those in experiments/ranking-*.toml.
    data
        The store, instead of the file's.
    out
        The run's folder, by default runs/NAME; with several seeds each has a folder in it.
    seeds
        How many seeds, from the file's on.
    resume
        Continue an interrupted run.
    json
        Print the evaluation as JSON.
    """
    if seeds < 1:
        raise InvalidSetting(f"seeds must be at least 1, not {seeds}")
    learner = learner_of(experiment, ('learner="ranking"',))
    assert isinstance(learner, RankLearner)
    settings = learner.settings
    if data is not None:
        settings = replace(settings, data=data)
    folder = Path("runs") / experiment.stem if out is None else out
    results = []
    for seed in range(settings.seed, settings.seed + seeds):
        own = folder if seeds == 1 else folder / f"seed-{seed}"
        found = run_ranking(replace(settings, seed=seed), own, resume=resume)
        results.append([RankedGraph(**graph) for graph in found["graphs"]])
    print_summary(summary(*results), results, json)


def evaluate(
    store: Path,
    *models: Path,
    side: str = "valid",
    collection: str | None = None,
    device: str = "cpu",
    json: _Json = False,
) -> None:
    """Measure how well trained rankers rank the graphs of a store; several make an interval over seeds.

    Args:
        store: The folder that `apportion rank pack` wrote.
        models: Folders that `apportion rank train` wrote, of one experiment with different seeds.
        side: Which side of the split is ranked.
        collection: Only this one.
        device: Where networks run: cpu or cuda.
        json: Print every graph and the summary as JSON.
    """
    if not models:
        raise InvalidSetting("Name at least one folder of a trained ranker, for example runs/ranking-layout")
    opened = ConfigurationStore.open(store)
    results = []
    for model in models:
        ranker = scorer_of(model, device=device)
        graphs = opened.graphs(collection=collection, side=side)
        results.append(rank_graphs(progress(graphs, label=f"ranking by {model}", quiet=json), ranker.scores))
    print_summary(summary(*results), results, json)


def print_summary(found: dict[str, Any], results: Sequence[Sequence[RankedGraph]], json: bool) -> None:
    """Print means with their intervals: a table, or JSON with every graph of every seed."""
    if json:
        graphs = results[0] if len(results) == 1 else results
        print_json({**found, "graphs": graphs})
        return
    rows = [
        (
            name,
            entry["graphs"],
            entry["seeds"],
            f"{entry['pairs']:,}",
            f"{entry['tied_scores']:,}",
            measure,
            interval_in_words(value),
        )
        for name, entry in found["collections"].items()
        for measure, value in entry["measures"].items()
    ]
    over = "graphs" if len(results) == 1 else "graphs and seeds"
    columns = ("collection", "graphs", "seeds", "pairs", "tied scores", "measure", f"mean [95 % over {over}]")
    print_table(columns, rows, right=columns[1:5])
    total = found["competition_total"]
    if total is not None:
        note(f"Mean of the five collections: {total:.4f}")


def interval_in_words(interval: Interval) -> str:
    """`0.8170 [0.7960, 0.8380]`."""
    return f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"
