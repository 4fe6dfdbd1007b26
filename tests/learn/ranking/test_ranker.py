"""Every ranker of the table, and what they have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("xgboost")

from apportion.data.artifact import Artifact, write_artifact
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn import rankers
from apportion.learn.model import Optimisation
from apportion.learn.ranking.average import AverageRanker, AverageSettings, Member
from apportion.learn.ranking.ranker import Chance, UntaughtSettings, load_ranker, only, validation_scores
from apportion.testing.ranker_checks import RankerChecks, half_of, layout_graph, tile_graph

LAYOUTS = tuple(layout_graph(seed) for seed in range(3))
TILES = tuple(tile_graph(seed) for seed in range(3))


class TestNetwork(RankerChecks):
    name = "network"
    hyperparameters = {"network": {"width": 16}, "sampled": 20}  # noqa: RUF012
    graphs = LAYOUTS


class TestNetworkOnTiles(RankerChecks):
    name = "network"
    hyperparameters = {"network": {"width": 16, "configurations": "tile"}, "averaging": 0.9}  # noqa: RUF012
    graphs = TILES


class TestTrees(RankerChecks):
    name = "trees"
    hyperparameters = {"trees": 20, "features": "launch"}  # noqa: RUF012
    graphs = TILES


class TestTreesOnLayouts(RankerChecks):
    name = "trees"
    hyperparameters = {"trees": 20}  # noqa: RUF012
    graphs = LAYOUTS


class TestXgboost(RankerChecks):
    name = "xgboost"
    hyperparameters = {"trees": 60}  # noqa: RUF012
    graphs = TILES


class TestXgboostOfRuntimes(RankerChecks):
    name = "xgboost"
    hyperparameters = {"trees": 60, "objective": "reg:squarederror", "leaf": 1}  # noqa: RUF012
    graphs = TILES


class TestAverage(RankerChecks):
    name = "average"
    hyperparameters = {  # noqa: RUF012
        "members": [
            {"model": "trees", "hyperparameters": {"trees": 20}},
            {"model": "xgboost", "hyperparameters": {"trees": 20}},
        ]
    }
    graphs = TILES


class TestRidge(RankerChecks):
    name = "ridge"
    hyperparameters = {"measured": 20}  # noqa: RUF012
    graphs = LAYOUTS
    learns = False


class TestRandom(RankerChecks):
    name = "random"
    hyperparameters = {}  # noqa: RUF012
    graphs = LAYOUTS
    learns = False


class TestConstant(RankerChecks):
    name = "constant"
    hyperparameters = {}  # noqa: RUF012
    graphs = LAYOUTS
    learns = False


def test_every_ranker_of_the_table_is_checked_above() -> None:
    assert {check.name for check in RankerChecks.__subclasses__()} == set(rankers)


def test_a_ridge_measured_on_the_graph_itself_ranks_it() -> None:
    ridge = rankers.load("ridge").create({"measured": 20}, optimisation=Optimisation())
    assert validation_scores(ridge, LAYOUTS)["tau_b"] > 0.9
    with pytest.raises(InvalidSetting, match="Tiles have no options"):
        ridge.scores(TILES[0])


def test_an_average_weighs_its_members_alike_whatever_their_scale() -> None:
    members = [Chance(UntaughtSettings(seed)) for seed in range(2)]
    average = AverageRanker(AverageSettings((Member("random"),) * 2), members)
    once = average.scores(TILES[0])

    class Louder(Chance):
        def scores(self, graph):  # type: ignore[no-untyped-def]
            return 1000 * super().scores(graph) + 7

    louder = AverageRanker(average.settings, [Louder(UntaughtSettings(0)), members[1]])
    np.testing.assert_allclose(louder.scores(TILES[0]), once)
    with pytest.raises(InvalidSetting, match="members must name at least one ranker"):
        AverageSettings(())


def test_a_constant_orders_nothing_and_chance_orders_nothing_on_average() -> None:
    constant = rankers.load("constant").create({}, optimisation=Optimisation())
    assert validation_scores(constant, LAYOUTS)["opa"] == 0
    draws = [validation_scores(Chance(UntaughtSettings(seed)), LAYOUTS)["tau_b"] for seed in range(40)]
    assert abs(np.mean(draws)) < 0.1


def test_some_configurations_of_a_graph_are_a_graph() -> None:
    graph = LAYOUTS[0]
    half = half_of(graph)
    np.testing.assert_array_equal(half.runtime, graph.runtime[::2])
    np.testing.assert_array_equal(half.features(half.codes), graph.features(graph.codes)[::2])
    assert only(graph, np.array([3, 1])).runtime.tolist() == graph.runtime[[3, 1]].tolist()


def test_validation_takes_at_most_as_many_configurations_as_it_is_told() -> None:
    seen = []

    class Watching(Chance):
        def scores(self, graph):  # type: ignore[no-untyped-def]
            seen.append(graph.configurations)
            return super().scores(graph)

    validation_scores(Watching(UntaughtSettings()), LAYOUTS, most=7)
    assert seen == [7, 7, 7]
    with pytest.raises(UnknownName, match="metric"):
        validation_scores(Watching(UntaughtSettings()), LAYOUTS, measures=["tau"])


def test_a_model_of_another_task_is_no_ranker(tmp_path: Path) -> None:
    write_artifact(tmp_path, Artifact("liveness", "constant"), {"rate": np.zeros(1)})
    with pytest.raises(MalformedInput, match="for the task 'liveness', not a ranker"):
        load_ranker(tmp_path)
