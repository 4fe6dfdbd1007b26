"""A ranking network answered by NumPy says what it says in torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.ranking.network_scores import NetworkScores, scorer_of
from apportion.learn.ranking.rank_predictor import RankPredictor
from apportion.testing.ranker_checks import layout_graph, tile_graph

torch = pytest.importorskip("torch")

from apportion.learn.model import Optimisation  # noqa: E402
from apportion.learn.ranking.ranking_learner import NetworkRanker  # noqa: E402

VARIANTS: list[dict[str, Any]] = [
    {},
    {"residual": "add"},
    {"layers": 3, "convolution": "sage"},
    {"norm": "graph", "convolution": "sage", "residual": "add"},
    {"norm": "instance"},
    {"attention": "nodes"},
    {"attention": "nodes", "norm": "graph", "convolution": "sage"},
    {"cross_configuration": True, "convolution": "sage"},
    {"layout_embedding": True, "hops": 1},
]


def saved(folder: Path, network: dict[str, Any]) -> NetworkRanker:
    """An untrained network, its scaling apart from nothing, as an artifact."""
    ranker = NetworkRanker.create({"network": network, "together": 16}, optimisation=Optimisation(), seed=3)
    random = np.random.default_rng(0)
    for name in ("mean", "option_mean", "deviation", "option_deviation"):
        held = getattr(ranker.network, name)
        held.copy_(torch.from_numpy(random.random(len(held)).astype(np.float32) + 0.5))
    ranker.save(folder)
    return ranker


def equal_to_torch(folder: Path, network: dict[str, Any], graph: ConfiguredGraph) -> None:
    said = saved(folder, network).scores(graph)
    found = NetworkScores.load(folder).scores(graph)
    assert np.ptp(said) > 1e-4  # configurations do make a difference
    np.testing.assert_allclose(found, said, rtol=0, atol=2e-6)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_layouts_are_scored_as_in_torch(variant: dict[str, Any], tmp_path: Path) -> None:
    equal_to_torch(tmp_path, {"width": 6, "opcode_width": 3, **variant}, layout_graph(5, nodes=30))


@pytest.mark.parametrize("variant", VARIANTS[:-1], ids=str)
def test_tiles_are_scored_as_in_torch(variant: dict[str, Any], tmp_path: Path) -> None:
    equal_to_torch(tmp_path, {"width": 6, "configurations": "tile", **variant}, tile_graph(2))


def test_a_few_configurations_at_a_time_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, {"width": 4, "norm": "graph"})
    graph, network = layout_graph(1), NetworkScores.load(tmp_path)
    whole = network.scores(graph)
    monkeypatch.setattr("apportion.learn.ranking.network_scores.HELD_FLOATS", 4 * 12 * 3)
    np.testing.assert_allclose(network.scores(graph), whole, rtol=0, atol=1e-6)


def test_a_predictor_answers_with_it(tmp_path: Path) -> None:
    ranker = saved(tmp_path, {"width": 4, "configurations": "tile"})
    (answer,) = RankPredictor.load(tmp_path).answer([tile_graph(0)])
    assert np.argmin(answer.value) == np.argmin(ranker.scores(tile_graph(0)))


def test_graphs_of_another_kind_and_other_artifacts_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, {"width": 4, "configurations": "tile"})
    with pytest.raises(InvalidSetting, match="but the network reads tiles"):
        NetworkScores.load(tmp_path).scores(layout_graph(0))
    (tmp_path / "artifact.json").write_text(
        (tmp_path / "artifact.json").read_text().replace('"model": "network"', '"model": "constant"')
    )
    with pytest.raises(MalformedInput, match="holds no ranking network"):
        NetworkScores.load(tmp_path)


def test_without_torch_the_network_alone_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = saved(tmp_path, {"width": 4, "configurations": "tile"})
    graph = tile_graph(0)
    assert isinstance(scorer_of(tmp_path), NetworkRanker)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "apportion.learn.ranking.ranking_learner")
    found = scorer_of(tmp_path)
    assert isinstance(found, NetworkScores)
    np.testing.assert_allclose(found.scores(graph), ranker.scores(graph), rtol=0, atol=2e-6)
