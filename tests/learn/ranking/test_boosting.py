"""Boosted trees answer with NumPy what XGBoost would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.learn.model import Optimisation
from apportion.learn.ranking.boosting import PairwiseRanker, TreeSettings
from apportion.learn.ranking.rank_predictor import trust_of
from apportion.learn.ranking.rows import configuration_rows
from apportion.testing.ranker_checks import tile_graph

xgboost = pytest.importorskip("xgboost")
ROWS = configuration_rows(tile_graph(0))


@pytest.mark.parametrize("trees", [10, 40])
def test_the_trees_say_what_the_booster_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trees: int
) -> None:
    boosters = []

    def kept(*arguments, train=xgboost.train):
        boosters.append(train(*arguments))
        return boosters[-1]

    monkeypatch.setattr(xgboost, "train", kept)
    ranker = PairwiseRanker(TreeSettings(trees=trees, objective="reg:squarederror", leaf=1), 0)
    runtimes = [tile_graph(seed).truth for seed in range(3)]
    ranker.grow([configuration_rows(tile_graph(seed)) for seed in range(3)], runtimes)
    said = -trees * ranker.predict(ROWS)
    wanted = boosters[0].predict(xgboost.DMatrix(ROWS))
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(said - said.mean(), wanted - wanted.mean(), atol=1e-5)
    ranker.save(tmp_path)
    np.testing.assert_array_equal(PairwiseRanker.load(tmp_path).predict(ROWS), ranker.predict(ROWS))


def test_relative_features_of_a_launch_need_no_compiler() -> None:
    graph = tile_graph(0)
    launch, relative = (configuration_rows(graph, which) for which in ("launch", "launch-relative"))
    np.testing.assert_array_equal(relative[:, : launch.shape[1]], launch)
    np.testing.assert_allclose(np.median(relative[:, launch.shape[1] :], axis=0), 0, atol=1e-12)


def test_shapes_of_one_kernel_do_not_make_another_kernel_strange() -> None:
    def called(seed: int, name: str):
        graph = tile_graph(seed)
        return type(graph)(name, graph.collection, graph.side, graph.arrays)

    ranker = PairwiseRanker.create({"trees": 2}, optimisation=Optimisation())
    shapes = [called(0, "sum.N1"), called(0, "sum.N2")]
    assert trust_of(ranker, shapes, []).apart == (1.0, 1.0)  # there is no other kernel
    assert trust_of(ranker, [*shapes, called(0, "product.N1")], []).apart == (0.0, 0.0, 0.0)
