"""Rankings of whole stores, by scores from a file or by a baseline; tuning on recorded runtimes."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.configurations import StoredGraph
from apportion.data.packing import pack
from apportion.data.published.tpugraphs import COLLECTIONS, PublishedFile
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.model.ridge import Tuned, TuningPlan, tune
from apportion.task.metrics import Interval
from apportion.task.ranking import agreement, competition_total, over_graphs, slowdown, tile_score
from apportion.task.submission import Asked

Scorer = Callable[[StoredGraph], NDArray[Any]]
"Scores (C,) of a graph's configurations, low for fast."

MEASURES = ("tau_b", "opa", "gamma", "tile_score", "slowdown@1", "slowdown@5", "slowdown@10", "slowdown@100")


@dataclass(frozen=True)
class RankedGraph:
    """How well one graph was ranked."""

    name: str
    collection: str
    configurations: int
    "Those evaluated."
    pairs: int
    "Pairs whose runtimes differ."
    tied_scores: int
    "How many of these have equal scores."
    measures: dict[str, float]


def ranked(graph: StoredGraph, scores: NDArray[Any]) -> RankedGraph:
    """How well scores (C,) rank a graph's evaluated configurations.

    Raises:
        InvalidSetting: the runtimes are not known, there is one configuration, or scores are not numbers.
    """
    if len(scores) != graph.configurations:
        raise InvalidSetting(f"{graph.name}: {len(scores)} scores for {graph.configurations} configurations")
    chosen = graph.evaluation
    truth, score = graph.truth[chosen], np.asarray(scores)[chosen]
    try:
        pairs = agreement(truth, score)
        measures = {"tau_b": pairs.tau_b, "opa": pairs.opa, "gamma": pairs.gamma}
        if graph.collection == "tile:xla":
            measures["tile_score"] = tile_score(truth, score)
        measures |= {f"slowdown@{k}": slowdown(truth, score, k) for k in (1, 5, 10, 100)}
    except InvalidSetting as error:
        raise InvalidSetting(f"{graph.name}: {error}") from error
    return RankedGraph(graph.name, graph.collection, len(truth), pairs.pairs, pairs.tied_scores, measures)


def rank_graphs(graphs: Iterable[StoredGraph], scorer: Scorer) -> list[RankedGraph]:
    """Each graph ranked and measured; one without known runtimes or with nothing to order raises."""
    return [ranked(graph, scorer(graph)) for graph in graphs]


def summary(results: Sequence[RankedGraph]) -> dict[str, Any]:
    """Means over the graphs of each collection with intervals, and the total where all five are there."""
    if not results:
        raise InvalidSetting("There is no graph to rank: see which there are with `apportion rank show`")
    collections: dict[str, Any] = {}
    for name in COLLECTIONS:
        own = [result for result in results if result.collection == name]
        if own:
            measures = {
                measure: over_graphs([result.measures[measure] for result in own])
                for measure in MEASURES
                if measure in own[0].measures
            }
            collections[name] = {
                "graphs": len(own), "pairs": sum(result.pairs for result in own),
                "tied_scores": sum(result.tied_scores for result in own), "measures": measures,
            }  # fmt: skip
    means = {name: _official(name, entry["measures"]).value for name, entry in collections.items()}
    total = competition_total(means) if len(means) == len(COLLECTIONS) else None
    return {"collections": collections, "competition_total": total}


def from_file(path: Path) -> Scorer:
    """Scores as an NPZ file holds them: an array (C,) for each graph, called `COLLECTION:NAME`.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it is none.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            known: dict[str, NDArray[Any]] = {name: file[name] for name in file.files}
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    except (ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise MalformedInput(f"This is no NPZ file of scores ({error})", file=str(path)) from error

    def scores(graph: StoredGraph) -> NDArray[Any]:
        name = f"{graph.collection}:{graph.name}"
        if name not in known:
            raise InvalidSetting(f"{path} has no scores for {name}")
        return known[name]

    return scores


def by_chance(seed: int = 0) -> Scorer:
    """Random scores: what to beat."""
    random = np.random.default_rng(seed)
    return lambda graph: random.random(graph.configurations)


def by_measuring(budget: int, seed: int = 0) -> Scorer:
    """Scores of the within-graph ridge after measuring a few configurations of the graph itself."""

    def scores(graph: StoredGraph) -> NDArray[Any]:
        if graph.collection == "tile:xla":
            raise InvalidSetting(
                "Tiles have no options that configurations share; rank layout graphs by ridge"
            )
        truth = graph.truth
        codes = np.asarray(graph.codes)
        return tune(codes, graph.option_counts, lambda i: truth[i], TuningPlan(budget), seed=seed).scores

    return scores


def asked(graph: StoredGraph) -> Asked:
    """What the competition wants to know of a graph: all configurations of its file, duplicates included."""
    group = graph.arrays.get("config_group")
    return Asked(graph.collection, graph.name, graph.configurations if group is None else len(group))


@dataclass(frozen=True, eq=False)
class RecordedTuning:
    """What tuning on recorded runtimes found, and how that compares with all that was recorded."""

    best: int
    "The configuration that it would choose, as the file numbers them."
    runtime_ns: float
    slowdown: float
    "Of that over the fastest recorded."
    measured: int
    distinct: int
    "How many different configurations there are."
    tau_b: float
    "Over the configurations that were not measured."
    opa: float
    pairs: int


def tune_recorded(path: Path, plan: TuningPlan, seeds: Sequence[int]) -> list[RecordedTuning]:
    """Tune a recorded layout file as if it were measured now, once for each seed.

    Equal configurations are one, whose runtime is the mean of its recordings.

    Raises:
        UnreadableFile, MalformedInput: the file is not a layout file as published.
        InvalidSetting: its runtimes are not known, or there are too few configurations.
    """
    with TemporaryDirectory() as folder:
        store = pack([PublishedFile(path, COLLECTIONS[1], "valid")], Path(folder), deduplicate=True)
        graph = store.graph(0)
        truth, codes = graph.truth, np.array(graph.codes)
        if len(codes) <= plan.budget + 1:
            raise InvalidSetting(
                f"{path} has {len(codes)} different configurations: a budget of {plan.budget} leaves none"
            )
        return [
            _compared(graph, truth, tune(codes, graph.option_counts, lambda i: truth[i], plan, seed=seed))
            for seed in seeds
        ]


def _compared(graph: StoredGraph, truth: NDArray[np.float64], tuned: Tuned) -> RecordedTuning:
    rest = np.ones(len(truth), np.bool_)
    rest[tuned.measured] = False
    pairs = agreement(truth[rest], tuned.scores[rest])
    first = int(np.argmax(graph.arrays["config_group"] == tuned.best))
    runtime = float(truth[tuned.best])
    return RecordedTuning(
        first, runtime, runtime / float(truth.min()) - 1, len(tuned.measured), len(truth),
        pairs.tau_b, pairs.opa, pairs.pairs,
    )  # fmt: skip


def _official(collection: str, measures: dict[str, Interval]) -> Interval:
    return measures["tile_score" if collection == "tile:xla" else "tau_b"]
