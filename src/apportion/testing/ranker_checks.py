"""What every ranker must hold; a test class derives from it and names the ranker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting
from apportion.learn import rankers
from apportion.learn.model import Optimisation
from apportion.learn.ranking.ranker import Ranker, load_ranker, only, validation_scores
from apportion.testing.model_checks import Silence


def layout_graph(seed: int, *, nodes: int = 12, configurations: int = 40) -> ConfiguredGraph:
    """A graph whose three configurable nodes have a cost for each layout, the same in every graph."""
    random = np.random.default_rng(seed)
    consumer = np.arange(1, nodes)
    producer = random.integers(0, consumer)
    options = np.full((9, 18), -1, np.float32)
    options[:, 0] = np.tile([0, 1, 2], 3)
    options[:, 6] = random.permuted(np.tile([0, 1, 2], 3))
    codes = random.integers(0, 3, (configurations, 3)).astype(np.uint8)
    cost = 3 * options[:, 0] + options[:, 6] + 1
    arrays: dict[str, NDArray[Any]] = {
        "node_opcode": random.integers(1, 121, nodes).astype(np.uint8),
        "node_feat": random.integers(0, 9, (nodes, 140)).astype(np.float32),
        "edge_index": np.stack([consumer, producer], 1),
        "node_splits": np.array([0, nodes // 2, nodes]),
        "node_config_ids": np.sort(random.choice(nodes, 3, replace=False)),
        "options": options, "option_offset": np.array([0, 3, 6, 9]), "codes": codes,
        "config_runtime": (1000 * cost[np.array([0, 3, 6]) + codes].sum(1)).astype(np.int64) + 500,
    }  # fmt: skip
    return ConfiguredGraph(f"layout-{seed}", "layout:xla:random", "train", arrays)


def tile_graph(seed: int, *, configurations: int = 30) -> ConfiguredGraph:
    """A kernel that takes as long as its tile is far from eight by eight."""
    random = np.random.default_rng(seed)
    tile = np.zeros((configurations, 24), np.float32)
    tile[:, 8:10] = 2.0 ** random.integers(0, 8, (configurations, 2))
    far = np.abs(np.log2(tile[:, 8:10]) - 3).sum(1)
    features = np.zeros((4, 140), np.float32)
    features[:, 21:23], features[:, 28], features[3, 0] = 64, 4096, 1
    arrays: dict[str, NDArray[Any]] = {
        "node_opcode": np.array([63, 63, 34, 2], np.uint8),
        "node_feat": features,
        "edge_index": np.array([[2, 0], [2, 1], [3, 2]]),
        "node_splits": np.array([0, 4]),
        "options": tile, "option_offset": np.array([0, configurations]),
        "codes": np.arange(configurations, dtype=np.uint8)[:, None],
        "config_runtime": (1000 * (1 + far) + random.integers(0, 9, configurations)).astype(np.int64),
        "config_runtime_normalizers": np.full(configurations, 3000),
    }  # fmt: skip
    return ConfiguredGraph(f"tile-{seed}", "tile:xla", "train", arrays)


class RankerChecks:
    """Derive, set `name`, `hyperparameters` and `graphs`, and let pytest collect the class."""

    name: str
    hyperparameters: Mapping[str, Any]
    graphs: tuple[ConfiguredGraph, ...]
    learns = True
    optimisation = Optimisation(learning_rate=1e-2, max_steps=150, validate_every=50)

    @classmethod
    def made(cls, **changes: Any) -> Ranker:
        """A new ranker."""
        ranker: Ranker = rankers.load(cls.name).create(
            {**cls.hyperparameters, **changes}, optimisation=cls.optimisation, seed=1
        )
        return ranker

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls) -> Ranker:
        """One that was fitted to the graphs; the tests do not change it."""
        ranker = cls.made()
        ranker.fit(cls.graphs, cls.graphs, Silence())
        return ranker

    def test_it_can_learn_a_few_graphs_by_heart(self, fitted: Ranker) -> None:
        if not self.learns:
            pytest.skip(f"{self.name} does not learn from other graphs")
        assert validation_scores(fitted, self.graphs)["tau_b"] > 0.8

    def test_it_answers_the_same_after_it_was_saved_and_loaded(self, fitted: Ranker, tmp_path: Path) -> None:
        fitted.save(tmp_path)
        loaded = load_ranker(tmp_path)
        assert type(loaded) is type(fitted)
        for graph in self.graphs:
            np.testing.assert_array_equal(loaded.scores(graph), fitted.scores(graph))

    def test_it_scores_every_configuration_with_a_number(self, fitted: Ranker) -> None:
        for graph in self.graphs:
            scores = np.asarray(fitted.scores(graph))
            assert scores.shape == (graph.configurations,)
            assert np.isfinite(scores).all()

    def test_runtimes_are_needed_to_learn(self) -> None:
        graph = self.graphs[0]
        unknown = ConfiguredGraph(
            graph.name, graph.collection, "test",
            {**graph.arrays, "config_runtime": np.zeros(graph.configurations, np.int64)},
        )  # fmt: skip
        with pytest.raises(InvalidSetting, match="has no runtimes"):
            self.made().fit([unknown], self.graphs, Silence())
        with pytest.raises(InvalidSetting, match="at least one graph"):
            self.made().fit([], self.graphs, Silence())

    def test_an_unknown_setting_is_an_error(self) -> None:
        with pytest.raises(InvalidSetting, match="widht"):
            self.made(widht=3)


def half_of(graph: ConfiguredGraph) -> ConfiguredGraph:
    """A graph with every second configuration."""
    return only(graph, np.arange(0, graph.configurations, 2))
