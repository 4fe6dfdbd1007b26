"""Table 4.1: which runs there are, running the rest, and the page."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

from apportion.cli import main
from apportion.cli.reproducedataflow import dataflow
from apportion.data.artifact import read_description
from apportion.data.dataflow import LabelSettings, build
from apportion.errors import InvalidSetting
from apportion.jobs import LocalRunner
from apportion.model import models
from apportion.settings import load
from apportion.train import dataflowtable
from apportion.train.dataflowpage import page, summaries
from apportion.train.dataflowship import ship
from apportion.train.dataflowtable import PlannedRun, TablePlan, TableRow, finished, train_rest

EXPERIMENT = """
task = "reachability"
data = "elsewhere"
device = "cpu"
node_budget = 400

[hyperparameters]
width = 6
steps = 3

[optimisation]
learning_rate = 1e-2
max_steps = 10
validate_every = 5
"""
PLAN = """
seeds = [0, 1]

[[rows]]
name = "reachability"
experiment = "small"
goal = 0.01
ships = true

[[rows]]
name = "reachability, summed"
experiment = "small"
seeds = [0]
goal = 1.0
set = ["hyperparameters.dilution=0.0"]

[[rows]]
name = "reachability"
experiment = "small"
sources = ["left"]
seeds = [0]
"""


def program(number: int, letter: str) -> str:
    additions = [f"  %v{i + 1} = add i32 %v{i}, {number + i}" for i in range(3 + number)]
    last = f"  ret i32 %v{1 + number}"
    return "\n".join([f"define i32 @{letter}(i32 %v0) {{", *additions, last, "}", ""])


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two corpora, and a plan beside it."""
    folder = tmp_path_factory.mktemp("table")
    for place, source in enumerate(("left", "right")):
        (folder / source).mkdir()
        for number in range(12):
            (folder / source / f"{number}.ll").write_text(program(2 * number + place, source))
    build([folder / "left", folder / "right"], folder / "store", LabelSettings())
    (folder / "small.toml").write_text(EXPERIMENT)
    (folder / "plan.toml").write_text(PLAN)
    return folder


def test_first_seeds_come_before_second_ones(two_sources: Path) -> None:
    plan = load(TablePlan, two_sources / "plan.toml")
    assert [(one.row.name, one.seed) for one in plan.runs()] == [
        ("reachability", 0), ("reachability, summed", 0), ("reachability", 0), ("reachability", 1),
    ]  # fmt: skip
    assert len({one.folder_name for one in plan.runs()}) == 4


def test_turns_come_one_after_the_other() -> None:
    rows = (TableRow("last", "c", turn=2), TableRow("first", "a"), TableRow("second", "b", turn=1))
    runs = TablePlan(rows, seeds=(1, 2)).runs()
    assert [(one.row.name, one.seed) for one in runs] == [
        ("first", 1), ("first", 2), ("second", 1), ("second", 2), ("last", 1), ("last", 2),
    ]  # fmt: skip


def test_a_plan_needs_rows() -> None:
    with pytest.raises(InvalidSetting, match="at least one row"):
        TablePlan(())


def test_a_row_without_its_store_is_refused(two_sources: Path) -> None:
    row = TableRow("liveness", "small", labels="exact")
    with pytest.raises(InvalidSetting, match="needs a store with exact labels"):
        PlannedRun(row, 0).experiment(two_sources, {"reference": two_sources / "store"}, 10.0)


def test_what_is_finished_is_not_trained_again_and_the_page_tells_all(
    two_sources: Path, tmp_path: Path
) -> None:
    plan = load(TablePlan, two_sources / "plan.toml")
    stores = {"reference": two_sources / "store"}
    said: list[str] = []
    runner = LocalRunner(workers=1)
    train_rest(plan, stores, tmp_path, runner, experiments=two_sources, say=said.append)
    assert len(said) == 4
    assert all("F1" in line for line in said)
    ended = finished(plan, tmp_path)
    assert len(ended) == 4
    train_rest(plan, stores, tmp_path, runner, experiments=two_sources, say=said.append)
    assert len(said) == 4

    rows = summaries(plan, ended)
    assert [row["runs"] for row in rows] == [2, 1, 1]
    assert rows[0]["met"]
    assert not rows[1]["met"]
    [away] = [one for one in ended if one.run.row.elsewhere]
    assert {part["source"] for part in away.result["by_source"]} == {"left", "right"}
    right = next(part for part in away.result["by_source"] if part["source"] == "right")
    assert away.result["other_sources"]["f1"] == right["f1"]
    assert rows[2]["f1"] == right["f1"]["value"]

    written = page(plan, ended)
    assert "1 of 2 goals are met; missed: reachability, summed" in written
    assert "| reachability | reference | 3 | mean |" in written
    assert "| sum |" in written
    assert "On another source than trained on" in written
    assert "Liveness has two rows" not in written

    # All runs were tested on the same examples, and the one that ships is the best by validation.
    assert len({one.result["test"]["examples"] for one in ended}) == 1
    best = ship(ended, tmp_path, tmp_path / "shipped")["reachability"]
    mine = [one.result["validation"] for one in ended if one.run.row.ships]
    assert len(mine) == 2
    assert best.result["validation"] == max(mine)
    about = read_description(tmp_path / "shipped" / "dataflow-reachability").experiment
    assert about["labels"] == "reference"
    assert about["settings"]["seed"] == best.run.seed
    assert about["test"] == best.result["test"]
    loaded = models.load("programl").load(tmp_path / "shipped" / "dataflow-reachability")
    assert loaded.hyperparameters == {"width": 6, "steps": 3}


def test_rows_that_do_not_ship_are_no_choice(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no finished run of a row that ships"):
        ship([], tmp_path, tmp_path / "shipped")


def test_a_run_that_would_have_no_time_is_left_out(two_sources: Path, tmp_path: Path) -> None:
    plan = load(TablePlan, two_sources / "plan.toml")
    said: list[str] = []
    stores = {"reference": two_sources / "store"}
    train_rest(
        plan, stores, tmp_path, LocalRunner(workers=1), experiments=two_sources, seconds=1, say=said.append
    )
    assert said
    assert all("the time is up" in line for line in said)
    assert finished(plan, tmp_path) == []


def test_a_process_that_lost_the_gpu_takes_no_further_run(
    two_sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: object, **settings: object) -> None:
        raise RuntimeError(problem)

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(dataflowtable, "run", lost)
    monkeypatch.setattr("os._exit", leave)
    plan = load(TablePlan, two_sources / "plan.toml")
    work = partial(
        dataflowtable._train, plan.runs()[0], folder=tmp_path, experiments=two_sources,
        stores={"reference": two_sources / "store"}, end=float("inf"),
    )  # fmt: skip
    problem = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(SystemExit):
        work()
    problem = "something else"
    with pytest.raises(RuntimeError, match="something else"):
        work()


def test_without_a_dataset_and_without_runs_the_command_says_what_to_do(
    two_sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([
            "reproduce", "dataflow", "--settings", str(two_sources / "plan.toml"), "--runs", str(tmp_path),
            "--out", str(tmp_path / "page.md"),
        ])  # fmt: skip
    assert "apportion dataset dataflow" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


def test_the_command_trains_and_prints_a_line_for_each_row(
    two_sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = two_sources / "one.toml"
    settings.write_text('seeds = [0]\n[[rows]]\nname = "reachability"\nexperiment = "small"\ngoal = 0.5\n')
    dataflow(
        settings=settings, store=two_sources / "store", runs=tmp_path / "runs", out=tmp_path / "page.md",
        json=True,
    )  # fmt: skip
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["name"] == "reachability"
    assert "Table 4.1" in (tmp_path / "page.md").read_text()
