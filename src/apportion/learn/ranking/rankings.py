"""Rankings of whole stores, by scores from a file or by a baseline; tuning on recorded runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import read_description
from apportion.data.configurations import ConfiguredGraph
from apportion.data.npz import DAMAGE
from apportion.data.published.tpugraphs import COLLECTIONS
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.learn.base import model_folder
from apportion.learn.metrics import Interval
from apportion.learn.ranking.measures import (
    agreement,
    competition_total,
    over_graphs_and_seeds,
    slowdown,
    tile_score,
)
from apportion.learn.ranking.network_scores import scorer_of
from apportion.learn.ranking.ridge import RankingRidgeSettings, RidgeRanker
from apportion.learn.ranking.submission import Asked

Scorer = Callable[[ConfiguredGraph], NDArray[Any]]
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


def ranked(graph: ConfiguredGraph, scores: NDArray[Any]) -> RankedGraph:
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


def rank_graphs(graphs: Iterable[ConfiguredGraph], scorer: Scorer) -> list[RankedGraph]:
    """Each graph ranked and measured; one without known runtimes or with nothing to order raises."""
    return [ranked(graph, scorer(graph)) for graph in graphs]


def summary(*seeds: Sequence[RankedGraph]) -> dict[str, Any]:
    """Means over the graphs of each collection with intervals, and the total where all five are there.

    Args:
        seeds: the same graphs ranked by one ranker, or by several that differ in their seed: intervals are
            then over graphs and seeds. Pairs and tied scores are those of one seed, the first.

    Raises:
        InvalidSetting: there is no graph, or seeds ranked different ones.
    """
    if not seeds or not seeds[0]:
        raise InvalidSetting("There is no graph to rank: see which there are with `apportion rank show`")
    if len({tuple((result.collection, result.name) for result in results) for results in seeds}) > 1:
        raise InvalidSetting("Each seed must have ranked the same graphs")
    collections: dict[str, Any] = {}
    for name in COLLECTIONS:
        own = [[result for result in results if result.collection == name] for results in seeds]
        if own[0]:
            measures = {
                measure: over_graphs_and_seeds([[one.measures[measure] for one in row] for row in own])
                for measure in MEASURES
                if measure in own[0][0].measures
            }
            collections[name] = {
                "graphs": len(own[0]), "seeds": len(own), "pairs": sum(result.pairs for result in own[0]),
                "tied_scores": sum(result.tied_scores for result in own[0]), "measures": measures,
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
    except (*DAMAGE, AttributeError) as error:
        raise MalformedInput(f"This is no NPZ file of scores ({error})", file=str(path)) from error

    def scores(graph: ConfiguredGraph) -> NDArray[Any]:
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
    return RidgeRanker(RankingRidgeSettings(measured=budget, seed=seed)).scores


def by_models(folders: Sequence[Path], *, device: str = "cpu") -> Scorer:
    """Scores of trained rankers: a graph's come from the first that was trained with its collection.

    Args:
        folders: or names of shipped rankers.

    Raises:
        UnknownName: there is no such folder, and no model of this name.
        UnreadableFile, MalformedInput: a folder has no ranker.
    """
    loaded = []
    for folder in map(model_folder, folders):
        settings = read_description(folder).experiment.get("settings", {})
        loaded.append((settings.get("collections") or COLLECTIONS, scorer_of(folder, device=device)))

    def scores(graph: ConfiguredGraph) -> NDArray[Any]:
        for collections, ranker in loaded:
            if graph.collection in collections:
                return ranker.scores(graph)
        raise InvalidSetting(f"No model that was given was trained with {graph.collection}: name one more")

    return scores


def asked(graph: ConfiguredGraph) -> Asked:
    """What the competition wants to know of a graph: all configurations of its file, duplicates included."""
    group = graph.arrays.get("config_group")
    return Asked(graph.collection, graph.name, graph.configurations if group is None else len(group))


def _official(collection: str, measures: dict[str, Interval]) -> Interval:
    return measures["tile_score" if collection == "tile:xla" else "tau_b"]
