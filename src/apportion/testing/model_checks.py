"""What every model of node labels must hold; a test class derives from it and names the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.data.batch import Batches, Examples, Graph, pack
from apportion.errors import InvalidSetting
from apportion.learn import models, tasks
from apportion.learn.model import Checkpoint, Model, Optimisation


class Silence:
    """A report that remembers the last checkpoint and says nothing."""

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint

    def resumed(self) -> Checkpoint | None:
        return self.checkpoint

    def stepped(self, step: int, *, loss: float, nodes: int, seconds: float) -> None:
        pass

    def validated(self, step: int, scores: Mapping[str, float], *, best: bool) -> None:
        pass

    def reached(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint


def reachable(seed: int, nodes: int = 12) -> tuple[Graph, int, np.ndarray[Any, np.dtype[np.uint8]]]:
    """Chains of four instructions, a root, and what it reaches: small enough to learn in seconds."""
    random = np.random.default_rng(seed)
    sources = np.array([node for node in range(nodes - 1) if node % 4 != 3], np.int32)
    count = len(sources)
    graph = Graph(
        random.integers(0, 3, nodes).astype(np.int32),
        np.stack([sources, sources + 1]),
        np.zeros(count, np.uint8),
        np.zeros(count, np.int32),
    )
    root = int(random.integers(0, nodes))
    labels = np.zeros(nodes, np.uint8)
    labels[root : root // 4 * 4 + 4] = 1
    return graph, root, labels


def eight_examples(first: int = 0) -> Examples:
    """Eight such questions."""
    graphs, roots, labels = zip(*(reachable(first + number) for number in range(8)), strict=True)
    return Examples(pack(graphs), np.arange(8), np.array(roots), np.full(8, 4), np.concatenate(labels))


class ModelChecks:
    """Derive, set `name` and `hyperparameters`, and let pytest collect the class."""

    name: str
    hyperparameters: Mapping[str, Any]
    learns = True

    def made(self, *, seed: int = 0, steps: int = 150) -> Model:
        """A new model."""
        model: Model = models.load(self.name).create(
            tasks.load("reachability"), ["a", "b"], self.hyperparameters, seed=seed,
            optimisation=Optimisation(learning_rate=5e-3, max_steps=steps, validate_every=50),
        )  # fmt: skip
        return model

    def test_it_can_learn_eight_examples_by_heart(self) -> None:
        if not self.learns:
            pytest.skip(f"{self.name} does not look at the graph")
        model, batches = self.made(), Batches(eight_examples(), 60)
        model.fit(batches, batches, Silence())
        assert model.score(batches)["f1"] == 1.0

    def test_renumbering_the_nodes_renumbers_the_answer_and_changes_nothing_else(self) -> None:
        graph, root, _ = reachable(3)
        order = np.random.default_rng(1).permutation(12)
        place = np.argsort(order).astype(np.int32)
        other = Graph(graph.node_text_id[order], place[graph.edges], graph.edge_flow, graph.edge_position)
        model = self.made()
        one = model.predict(pack([graph]).batch([0], [root]))
        two = model.predict(pack([other]).batch([0], [int(place[root])]))
        np.testing.assert_allclose(two, one[order], atol=1e-6)

    def test_a_graph_gets_the_same_answer_in_any_company(self) -> None:
        graph, root, _ = reachable(3)
        company, other, _ = reachable(4)
        model, packed = self.made(), pack([company, graph])
        alone = model.predict(packed.batch([1], [root]))
        together = model.predict(packed.batch([0, 1], [other, root]))
        np.testing.assert_allclose(together[12:], alone, atol=1e-6)

    def test_it_answers_the_same_after_it_was_saved_and_loaded(self, tmp_path: Path) -> None:
        model = self.made(steps=3)
        batches = Batches(eight_examples(), 60)
        model.fit(batches, batches, Silence())
        model.save(tmp_path)
        loaded = models.load(self.name).load(tmp_path)
        batch = next(iter(batches))
        np.testing.assert_array_equal(loaded.predict(batch), model.predict(batch))

    def test_an_unknown_hyperparameter_is_refused_by_name(self) -> None:
        with pytest.raises(InvalidSetting, match="colour"):
            models.load(self.name).create(
                tasks.load("reachability"), [], {"colour": 3}, optimisation=Optimisation()
            )
