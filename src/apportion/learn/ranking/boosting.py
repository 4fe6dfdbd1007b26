"""Trees that rank configurations by rows of features: scikit-learn's forests, XGBoost's boosted trees."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import read_artifact
from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting, MissingPackage
from apportion.learn.forest import Forest
from apportion.learn.model import Optimisation, Report
from apportion.learn.ranking.ranker import Graphs, Ranker, check_graphs, only, validation_scores
from apportion.learn.ranking.rows import FeatureSet, Rows, configuration_rows, relative_log
from apportion.settings import convert

_LEVELS = 31
"Grades of relevance that XGBoost's ranking objectives know at most."


@dataclass(frozen=True)
class TreeSettings:
    """How trees are grown; what a kind has no use for is left at its default."""

    features: FeatureSet = "published"
    kind: Literal["extra-trees", "random-forest"] = "extra-trees"
    "Of a forest; XGBoost's are boosted."
    objective: Literal["rank:pairwise", "reg:squarederror"] = "rank:pairwise"
    "What XGBoost minimises: pairs in the wrong order, or the error of logarithms of runtimes."
    trees: int = 200
    max_features: float = 0.5
    "The part of the features that each split, or each boosted tree, looks at."
    leaf: int = 2
    "The fewest rows in a leaf."
    depth: int = 0
    "The deepest a tree may be; 0 for any in a forest and 8 in boosting."
    learning_rate: float = 0.1
    emphasis: float = 0.0
    "An error of XGBoost's about a runtime weighs as the fastest over that runtime, to this power."
    sampled: int = 1_000
    "At most so many configurations of each graph are learned from, drawn by the seed."

    def __post_init__(self) -> None:
        if self.trees < 1 or self.leaf < 1 or self.depth < 0 or self.sampled < 2:
            raise InvalidSetting(
                "trees and leaf must be at least 1, sampled 2, and depth must not be negative"
            )
        if self.emphasis < 0:
            raise InvalidSetting(f"emphasis must not be negative, not {self.emphasis}")
        if not 0 < self.max_features <= 1:
            raise InvalidSetting(f"max_features must lie above 0 and not above 1, not {self.max_features}")


class RowRanker(Ranker):
    """A ranker that looks at rows of features; a subclass says how it learns and what it then holds."""

    settings_type = TreeSettings

    def __init__(self, settings: TreeSettings, seed: int) -> None:
        self.settings, self.seed = settings, seed

    @classmethod
    def untrained(cls, settings: TreeSettings, optimisation: Optimisation, seed: int, device: str) -> Self:
        return cls(settings, seed)

    def fit(self, training: Graphs, validation: Graphs, report: Report) -> None:
        check_graphs(training, validation)
        random = np.random.default_rng(self.seed)
        rows, runtimes = [], []
        for graph in training:
            chosen = np.arange(graph.configurations)
            if len(chosen) > self.settings.sampled:
                chosen = np.sort(random.choice(chosen, self.settings.sampled, replace=False))
            part = only(graph, chosen)
            rows.append(configuration_rows(part, self.settings.features))
            runtimes.append(part.truth)
        self.grow(rows, runtimes)
        report.validated(self.settings.trees, validation_scores(self, validation, most=2_000), best=True)

    def scores(self, graph: ConfiguredGraph) -> NDArray[np.float64]:
        return self.predict(configuration_rows(graph, self.settings.features))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        artifact, arrays = read_artifact(folder)
        ranker = cls(convert(TreeSettings, artifact.hyperparameters, source=str(folder)), 0)
        ranker.hold(arrays)
        return ranker

    @abstractmethod
    def grow(self, rows: list[Rows], runtimes: list[NDArray[np.float64]]) -> None:
        """Learn from the rows (C, F) and runtimes (C,) of each graph."""

    @abstractmethod
    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """(C,) low for fast."""

    @abstractmethod
    def hold(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take what `arrays` gave."""


class TreeRanker(RowRanker):
    """A forest that tells by which factor a configuration differs from the graph's mean."""

    name = "trees"
    _forest: Forest | None = None

    def grow(self, rows: list[Rows], runtimes: list[NDArray[np.float64]]) -> None:
        from apportion.learn.shares.trees import (  # scikit-learn, which only growing needs
            RowModel,
            RowSettings,
        )

        settings = self.settings
        chosen = RowSettings(
            settings.kind, settings.trees, settings.max_features, settings.leaf, settings.depth
        )
        every = np.concatenate(rows)
        truth = np.concatenate([relative_log(runtime) for runtime in runtimes])
        self._forest = RowModel.fit(chosen, every, truth, seed=self.seed).forest(every[:1000])

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        return self._grown.predict(rows)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._grown.arrays()

    def hold(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._forest = Forest.of_arrays(arrays)

    @property
    def _grown(self) -> Forest:
        if self._forest is None:
            raise InvalidSetting("This ranker has not learned anything yet: fit it first")
        return self._forest


class PairwiseRanker(TreeRanker):
    """XGBoost's boosted trees: pairs of a graph's configurations in the right order. XGBoost grows them; they
    answer without it."""

    name = "xgboost"

    def grow(self, rows: list[Rows], runtimes: list[NDArray[np.float64]]) -> None:
        xgboost, settings = _xgboost(), self.settings
        ranks = settings.objective == "rank:pairwise"
        labels = [_relevance(runtime) if ranks else -relative_log(runtime) for runtime in runtimes]
        data = xgboost.DMatrix(np.concatenate(rows), np.concatenate(labels))
        if ranks:
            data.set_group([len(part) for part in rows])
        else:
            data.set_weight(np.concatenate([_weights(runtime, settings.emphasis) for runtime in runtimes]))
        parameters = {
            "objective": settings.objective, "eta": settings.learning_rate, "max_depth": settings.depth or 8,
            "min_child_weight": 0.1 if ranks else settings.leaf, "colsample_bytree": settings.max_features,
            "seed": self.seed, "nthread": 1, "tree_method": "hist",
        }  # fmt: skip
        if ranks:
            parameters |= {"lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 8}
        self._forest = _forest_of(xgboost.train(parameters, data, settings.trees))


def _forest_of(booster: Any) -> Forest:
    """The trees of a booster, whose mean orders rows as it does, the fastest first."""
    trees = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    parts: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value")
    }
    roots, nodes, depth = [], 0, 0
    for tree in trees:
        left, right = (np.array(tree[f"{side}_children"], np.int32) for side in ("left", "right"))
        leaf = left < 0
        own = np.arange(len(left), dtype=np.int32)
        condition = np.array(tree["split_conditions"], np.float32)
        parts["feature"].append(np.where(leaf, 0, np.array(tree["split_indices"], np.int64)).astype(np.int16))
        # XGBoost goes left below a condition, a forest up to its threshold.
        parts["threshold"].append(np.where(leaf, np.float32(0), np.nextafter(condition, np.float32(-np.inf))))
        parts["left"].append(np.where(leaf, own, left) + np.int32(nodes))
        parts["right"].append(np.where(leaf, own, right) + np.int32(nodes))
        # A booster's score is high for fast.
        parts["value"].append(np.where(leaf, -condition, np.float32(0)))
        depth = max(depth, _depth(left, right))
        roots.append(nodes)
        nodes += len(left)
    arrays = {name: np.concatenate(each) for name, each in parts.items()}
    return Forest(**arrays, root=np.array(roots, np.int32), depth=depth)


def _depth(left: NDArray[np.int32], right: NDArray[np.int32]) -> int:
    """Steps from the root to the farthest leaf."""
    level, steps = np.zeros(1, np.int32), 0
    while True:
        children = np.concatenate([left[level], right[level]])
        level = children[children >= 0]
        if not len(level):
            return steps
        steps += 1


def _relevance(runtime: NDArray[np.float64]) -> NDArray[np.float64]:
    """(C,) 31 for the fastest to 0 for the slowest, by rank."""
    place = np.unique(runtime, return_inverse=True)[1]
    grades: NDArray[np.float64] = np.round(_LEVELS * (1 - place / max(1, int(place.max()))))
    return grades


def _weights(runtime: NDArray[np.float64], emphasis: float) -> NDArray[np.float64]:
    """(C,) with mean 1, so that graphs weigh alike."""
    weights = (runtime.min() / runtime) ** emphasis
    found: NDArray[np.float64] = weights / weights.mean()
    return found


def _xgboost() -> Any:
    try:
        import xgboost  # an optional package, which only this ranker needs
    except ModuleNotFoundError as error:
        raise MissingPackage("xgboost", "xgboost", "Boosted trees that rank pairs") from error
    return xgboost
