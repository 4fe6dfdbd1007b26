"""Rankers that ship: kernels are held out whole, and a network is chosen by graphs that did not teach it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion.learn.model import Optimisation
from apportion.testing.ranker_checks import tile_graph
from reproduction.ship.rankers import ShippedRanker, fitted, held_out

GRAPHS = [
    replace(tile_graph(3 * kernel + shape), name=f"kernel{kernel}.shape{shape}")
    for kernel in range(4)
    for shape in range(3)
]


def network(folds: int) -> ShippedRanker:
    return ShippedRanker(
        "small", "tile, made up", lambda collections, samples: GRAPHS,
        {"network": {"configurations": "tile", "width": 8, "opcode_width": 4}, "sampled": 16}, "network",
        Optimisation(learning_rate=1e-2, max_steps=40, validate_every=20), folds=folds,
    )  # fmt: skip


def test_a_network_is_held_out_in_parts_of_whole_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    learned: list[set[str]] = []

    def noted(one: ShippedRanker, graphs: list) -> object:  # type: ignore[type-arg]
        learned.append({graph.name.partition(".")[0] for graph in graphs})
        return fitted(one, graphs)

    monkeypatch.setattr("reproduction.ship.rankers.fitted", noted)
    found = held_out(network(2), GRAPHS)
    assert len(learned) == 2
    assert learned[0] | learned[1] == {f"kernel{number}" for number in range(4)}
    assert not learned[0] & learned[1]
    assert found.folds == "kernel"
    # What a tile is far from is the same for all kernels here, so that a little training orders unseen ones.
    assert found.measures["opa"] > found.chance["opa"] + 0.1
    assert found.chance["opa"] == pytest.approx(0.5, abs=0.1)


def test_the_shipped_network_answers_as_it_was_trained(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    from apportion.learn.ranking.network_scores import NetworkScores

    ranker = fitted(network(0), GRAPHS)
    ranker.save(tmp_path)
    said = NetworkScores.load(tmp_path).scores(GRAPHS[0])
    np.testing.assert_allclose(said, ranker.scores(GRAPHS[0]), rtol=0, atol=1e-5)
