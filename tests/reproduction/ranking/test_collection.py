"""Rankers on a collection of kernels and shapes: reading it, its folds, and the comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from apportion.data.packing import unpack
from apportion.data.published.tpugraphs import TileFile, published_arrays
from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.learn import rankers
from apportion.learn.ranking.rows import configuration_rows
from apportion.settings import load
from apportion.testing.ranker_checks import tile_graph
from reproduction.ranking.collection import (
    CHANCE,
    DEFAULT,
    HALF,
    CollectionComparison,
    Entry,
    compare,
    folds_of,
    measured,
    read_collection,
    usable,
)

NAMES = [
    f"{kernel}.{shape}" for kernel in ("product", "softmax", "sum") for shape in ("M1", "M2", "M3", "M4")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve graphs whose repeats differ by a few parts in a thousand, the default in place 4."""
    out = tmp_path_factory.mktemp("collection") / "tile" / "xla" / "train"
    out.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        file = unpack(tile_graph(number))
        assert isinstance(file, TileFile)
        random = np.random.default_rng(number)
        count = len(file.config_runtime)
        repeats = (file.config_runtime[:, None] * random.normal(1, 0.002, (count, 8))).astype(np.int64)
        runtime = np.median(repeats, axis=1).astype(np.int64)
        made = TileFile(file.graph, file.config_feat, runtime, np.full(count, runtime[4]))
        compiled = {
            f"compiled_{what}": random.integers(1, 200, count)
            for what in ("registers", "spills", "shared_bytes", "programs")
        }
        own = {"config_repeats": repeats, "default": np.array([4]), **compiled}
        np.savez_compressed(out / f"{name}.npz", **published_arrays(made), **own)
    return out.parents[2]


def test_a_collection_is_read_with_what_tpugraphs_does_not_know(folder: Path) -> None:
    graphs = read_collection(folder)
    assert [graph.name for graph in graphs] == NAMES
    assert graphs[0].arrays["config_repeats"].shape == (30, 8)
    assert configuration_rows(graphs[0], "compiled").shape[0] == 30
    assert (
        configuration_rows(graphs[0], "launch").shape[1] < configuration_rows(graphs[0], "compiled").shape[1]
    )
    with pytest.raises(UnreadableFile, match="There is no collection of tiles"):
        read_collection(folder / "nothing")


def test_under_shapes_every_kernel_is_learned_from_and_tested_with_other_shapes() -> None:
    folds = folds_of(NAMES, "shapes", 4)
    assert sorted(np.concatenate([fold.test for fold in folds]).tolist()) == list(range(12))
    for fold in folds:
        learned = {NAMES[i].split(".")[0] for i in fold.learnable}
        assert learned == {NAMES[i].split(".")[0] for i in fold.test} == {"product", "softmax", "sum"}


def test_under_kernels_none_that_is_tested_was_learned_from() -> None:
    folds = folds_of(NAMES, "kernels", 3, seed=1)
    assert sorted(np.concatenate([fold.test for fold in folds]).tolist()) == list(range(12))
    for fold in folds:
        learned = {NAMES[i].split(".")[0] for i in fold.learnable}
        assert learned.isdisjoint(NAMES[i].split(".")[0] for i in fold.test)


def test_too_few_kernels_or_shapes_make_no_folds() -> None:
    with pytest.raises(InvalidSetting, match="3 kernels do not make 4 folds"):
        folds_of(NAMES, "kernels", 4)
    with pytest.raises(InvalidSetting, match="sum has one shape"):
        folds_of([*NAMES[:8], "sum.M1"], "shapes", 2)


def test_a_comparison_ranks_every_graph_once_and_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    graphs = read_collection(folder)
    comparison = CollectionComparison(
        (Entry("trees", "trees", {"trees": 20}), Entry("the first", "constant")), folds=2, kernel_folds=3
    )
    said: list[str] = []
    scores = compare(comparison, graphs, tmp_path / "folds.jsonl", report=said.append)
    assert len(said) == 2 * (2 + 3)
    found = {(score.protocol, score.row): score for score in scores}
    assert {row for _, row in found} == {"trees", "the first", CHANCE, DEFAULT, HALF}
    for protocol in ("shapes", "kernels"):
        trees, chance = found[protocol, "trees"], found[protocol, CHANCE]
        assert (trees.graphs, trees.seeds, chance.seeds) == (12, 1, 20)
        assert trees.measures["opa"].value > 0.8 > chance.measures["opa"].value
        assert trees.measures["tile_score"].value > chance.measures["tile_score"].value
        assert found[protocol, HALF].measures["opa"].value > 0.9
        assert found[protocol, DEFAULT].measures["speedup"].value == 1
    assert compare(comparison, graphs, tmp_path / "folds.jsonl", report=said.append) == scores
    assert len(said) == 10  # nothing was run again


def test_the_speed_of_the_first_is_in_terms_of_the_default(folder: Path) -> None:
    graph = read_collection(folder)[0]
    scores = np.ones(30)
    scores[4] = 0
    assert measured(graph, scores).measures["speedup"] == pytest.approx(1)
    best = int(np.argmin(graph.runtime))
    scores[best] = -1
    assert measured(graph, scores).measures["speedup"] == pytest.approx(
        graph.runtime[4] / graph.runtime[best]
    )


def test_what_the_compiler_said_must_be_there_to_be_used() -> None:
    with pytest.raises(InvalidSetting, match="does not say its compiled registers; set features = 'launch'"):
        configuration_rows(tile_graph(0), "compiled")


def test_a_collection_allows_what_it_has_the_numbers_and_the_kernels_for() -> None:
    member = {"model": "trees", "hyperparameters": {"features": "relative"}}
    rows = (Entry("plain", "trees"), Entry("both", "average", {"members": [member]}))
    graphs = [replace(tile_graph(number), name=f"kernel{number}.M1") for number in range(3)]
    found = usable(CollectionComparison(rows, kernel_folds=6), graphs)
    assert ([row.name for row in found.rows], found.kernel_folds) == (["plain"], 3)


def test_the_shipped_comparison_makes_its_rankers() -> None:
    pytest.importorskip("torch")
    comparison = load(
        CollectionComparison, Path(__file__).parents[3] / "experiments" / "ranking-collection.toml"
    )
    for row in comparison.rows:
        assert rankers.load(row.model).create(row.hyperparameters, optimisation=row.optimisation)


def test_impossible_comparisons_are_refused() -> None:
    with pytest.raises(UnknownName, match="ranker"):
        Entry("x", "tres")
    with pytest.raises(InvalidSetting, match="folds must be at least 2"):
        CollectionComparison((), folds=1)
    with pytest.raises(InvalidSetting, match="a name of its own"):
        CollectionComparison((Entry("x", "trees"), Entry("x", "random")))
