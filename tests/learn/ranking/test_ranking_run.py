"""A ranking experiment from its file to its folder, and after an interruption."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from apportion.data.configurations import ConfigurationStore
from apportion.data.packing import pack, unpack
from apportion.data.published import tpugraphs
from apportion.data.published.tpugraphs import LayoutFile
from apportion.errors import AlreadyWritten, InvalidSetting, UnknownName
from apportion.jobs.holding import held
from apportion.learn import rankers
from apportion.learn.model import Optimisation
from apportion.learn.ranking.ranker import load_ranker
from apportion.learn.ranking.ranking_run import RankingExperiment, run_ranking, sides
from apportion.learn.ranking.rankings import by_chance, rank_graphs, summary
from apportion.settings import load
from apportion.testing.ranker_checks import layout_graph

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
OTHERS = {"ranking-collection", "ranking-curves"}
"Plans of reproductions, which other commands read."
SHIPPED = [path for path in sorted(EXPERIMENTS.glob("ranking-*.toml")) if path.stem not in OTHERS]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three graphs to learn from, two to validate with, one to test."""
    folder = tmp_path_factory.mktemp("ranking")
    for number in range(6):
        side = "train" if number < 3 else "valid" if number < 5 else "test"
        place = folder / "npz" / "layout/xla/random" / side
        place.mkdir(parents=True, exist_ok=True)
        file = unpack(layout_graph(number))
        assert isinstance(file, LayoutFile)
        tpugraphs.write(place / f"g{number}.npz", file)
    pack(tpugraphs.files(folder / "npz"), folder / "store")
    return folder / "store"


def experiment(store: Path, **changes: Any) -> RankingExperiment:
    settings: dict[str, Any] = {
        "data": store, "device": "cpu", "hyperparameters": {"network": {"width": 8}, "sampled": 16},
        "optimisation": Optimisation(learning_rate=1e-2, max_steps=20, validate_every=10),
    }  # fmt: skip
    return RankingExperiment(**{**settings, **changes})


def test_a_run_leaves_settings_metrics_a_ranker_its_evaluation_and_a_page(
    store: Path, tmp_path: Path
) -> None:
    said = io.StringIO()
    result = run_ranking(experiment(store), tmp_path / "run", progress=said)
    assert "3 graphs to learn from, 2 to validate with, 3 to evaluate" in said.getvalue()
    assert "step 20 of 20" in said.getvalue()
    entry = result["evaluation"]["collections"]["layout:xla:random"]
    assert (entry["graphs"], entry["seeds"]) == (3, 1)
    assert entry["pairs"] == sum(graph["pairs"] for graph in result["graphs"])
    assert 0 <= entry["measures"]["opa"]["value"] <= 1
    ranker = load_ranker(tmp_path / "run")
    graphs = [graph for graph in ConfigurationStore.open(store).graphs() if graph.side != "train"]
    again = rank_graphs(graphs, ranker.scores)
    assert [graph.measures for graph in again] == [graph["measures"] for graph in result["graphs"]]
    page = (tmp_path / "run" / "page.html").read_text()
    assert "g3" in page
    assert "Tau-b on the validation graphs" in page
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics if "validation_tau_b" in row] == [10, 20]


def test_a_finished_run_is_read_and_another_is_refused(store: Path, tmp_path: Path) -> None:
    quiet = io.StringIO()
    first = run_ranking(experiment(store, model="random", hyperparameters={}), tmp_path, progress=quiet)
    again = run_ranking(
        experiment(store, model="random", hyperparameters={}), tmp_path, resume=True, progress=quiet
    )
    assert again == first
    with pytest.raises(InvalidSetting, match="holds a run already"):
        run_ranking(experiment(store, model="random", hyperparameters={}), tmp_path, progress=quiet)
    other = experiment(store, model="random", hyperparameters={}, seed=1)
    with pytest.raises(InvalidSetting, match="other settings, data or version"):
        run_ranking(other, tmp_path, resume=True, progress=quiet)


def test_an_interrupted_run_goes_on_from_its_checkpoint(store: Path, tmp_path: Path) -> None:
    class Interrupting(io.StringIO):
        def write(self, text: str) -> int:
            if "step 20 of" in text:
                raise KeyboardInterrupt
            return super().write(text)

    whole = run_ranking(experiment(store), tmp_path / "whole", progress=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        run_ranking(experiment(store), tmp_path / "cut", progress=Interrupting())
    said = io.StringIO()
    resumed = run_ranking(experiment(store), tmp_path / "cut", resume=True, progress=said)
    assert "going on from step 10" in said.getvalue()
    assert resumed["graphs"] == whole["graphs"]


def test_training_graphs_can_choose_the_weights_instead_of_those_evaluated(store: Path) -> None:
    opened = ConfigurationStore.open(store)
    training, validation, tested = sides(opened, experiment(store, held_out=0.4))
    assert (len(training), len(validation), len(tested)) == (2, 1, 3)
    assert {graph.name for graph in training + validation} == {"g0", "g1", "g2"}
    with pytest.raises(InvalidSetting, match="no graph with runtimes to learn from"):
        sides(opened, experiment(store, collections=("tile:xla",)))


def test_several_seeds_make_one_interval(store: Path) -> None:
    graphs = list(ConfigurationStore.open(store).graphs(side="valid"))
    chances = [rank_graphs(graphs, by_chance(seed)) for seed in range(5)]
    together = summary(*chances)["collections"]["layout:xla:random"]
    alone = summary(chances[0])["collections"]["layout:xla:random"]
    assert (together["seeds"], alone["seeds"]) == (5, 1)
    assert together["pairs"] == alone["pairs"]
    assert together["measures"]["opa"].low < 0.5 < together["measures"]["opa"].high
    with pytest.raises(InvalidSetting, match="the same graphs"):
        summary(chances[0], chances[1][:1])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_experiment_makes_a_ranker(path: Path) -> None:
    found = load(RankingExperiment, path)
    ranker = rankers.load(found.model).create(found.hyperparameters, optimisation=found.optimisation)
    assert ranker.chooses


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "netwrok"}, UnknownName, "network"),
        ({"collections": ("tile",)}, UnknownName, "tile:xla"),
        ({"held_out": 1.0}, InvalidSetting, "held_out must lie from 0 to below 1"),
        ({"seed": -1}, InvalidSetting, "seed must not be negative"),
    ],
)
def test_impossible_experiments_are_refused(
    store: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(experiment(store), **changes)


def test_a_finished_run_stays_as_it_is_when_it_is_resumed(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = run_ranking(experiment(store), folder, progress=io.StringIO())
    with (folder / "metrics.jsonl").open("a") as metrics:  # as the last steps after the last checkpoint are
        metrics.write('{"step": 99, "loss": 1.0}\n')
    there = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    again = run_ranking(experiment(store), folder, resume=True, progress=io.StringIO())
    assert again == first
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == there


def test_of_two_runs_in_one_folder_the_second_is_told_who_the_first_is(store: Path, tmp_path: Path) -> None:
    with (
        held(tmp_path / "run"),
        pytest.raises(AlreadyWritten, match=f"is being written by process {os.getpid()} "),
    ):
        run_ranking(experiment(store), tmp_path / "run", progress=io.StringIO())
