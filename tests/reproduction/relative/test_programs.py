"""`python -m reproduction relative-programs`: the page, its parts by workers, and the models that ship."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from apportion.data.counter_table import CounterTable, Row, System
from apportion.learn.relative import fitting_relative
from apportion.learn.relative.relative_table import table_of
from apportion.settings import load
from apportion.weights import manifest
from reproduction.relative import programs
from reproduction.relative.comparison import Comparison
from reproduction.relative.programs import feature_sets, fit_share, relative_programs
from reproduction.relative.shipped_programs import ABOUT, NAME, ship_models

SYSTEMS = {"xeon-4": 1.0, "xeon-16": 3.0, "h200-100": 40.0, "h200-10": 9.0}
SETTINGS = """
systems = ["xeon-4", "xeon-16", "h200-100", "h200-10"]
profiled = "xeon-4"
second = "h200-100"
repetitions = 1
[[rows]]
name = "always the fastest on average"
learner = "constant"
[[rows]]
name = "ridge"
learner = "ridge"
candidate = "counters"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty runs in six families on four systems: whoever has much to do is faster on a GPU."""
    random, rows = np.random.default_rng(0), []
    for number in range(60):
        work, memory = 10 ** random.uniform(4, 9), random.uniform(0.1, 0.6)
        about = (f"f{number % 6}/p{number}/{number}", f"f{number % 6}", f"p{number}", str(number))
        rows += [
            Row(*about, "", 0, name, value, source, "exact")
            for name, value, source in (
                ("instructions", work, "callgrind"), ("mem_ratio", memory, "callgrind"),
                ("operators", np.round(work / 1e4), "torch-dispatch"),
            )
        ]  # fmt: skip
        for system, speed in SYSTEMS.items():
            start = 1e-5 * (8 if system.startswith("h200") else 1)
            rows += [
                Row(*about, system, repeat, "seconds",
                    (start + work * (1 + memory) / speed / 1e9) * random.uniform(0.98, 1.02), "clock", "exact")
                for repeat in range(4)
            ]  # fmt: skip
    kinds = [
        System(name, "gpu" if name.startswith("h200") else "cpu", description={"device": "cpu"})
        for name in SYSTEMS
    ]
    CounterTable.of(rows, kinds).write(tmp_path / "programs.parquet")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short curves."""
    monkeypatch.setattr(programs, "CURVES", {"ridge": ("ridge", {"strength": 30.0})})
    monkeypatch.setattr(programs, "RUNS", (20, 40))
    monkeypatch.setattr(programs, "FAMILIES", (2, 4))
    monkeypatch.setattr(programs, "FEW", (5,))
    monkeypatch.setattr(programs, "_FEW_DRAWS", 2)
    monkeypatch.setattr(programs, "PROGRAM_GOALS", programs.Goals(programs.PROGRAM_GOALS.targets, {5: 0.45}))


def _made(folder: Path, name: str) -> str:
    relative_programs(
        table=folder / "programs.parquet", settings=folder / "settings.toml", out=folder / f"{name}.md",
        results=folder / name / "folds.jsonl", stored=folder / "stored.jsonl.xz",
    )  # fmt: skip
    return (folder / f"{name}.md").read_text()


def test_the_page_is_made_of_what_workers_left_and_again_of_what_is_stored(
    folder: Path, small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = load(Comparison, folder / "settings.toml")
    source = CounterTable.read(folder / "programs.parquet")
    tables = [
        table_of(source, name="programs", counters=counters, systems=comparison.systems)
        for _, _, counters in feature_sets(source)
    ]
    for worker in (1, 2, 3):
        fit_share(comparison, tables, folder / "one" / "folds.jsonl", (worker, 3))
    left = {path.name: path.read_bytes() for path in (folder / "one").glob("*.jsonl")}
    assert set(left) == {"folds.jsonl", "folds-beside.jsonl"}
    page = _made(folder, "one")
    assert {path.name: path.read_bytes() for path in (folder / "one").glob("*.jsonl")} == left
    assert _made(folder, "two") == page
    assert page.count("### Against the goals") == page.count("### How much data would do") == 2
    assert "| applications left out | fastest system named | 0.85 |" in page
    assert "Learned from so many families" in page
    assert "2 counters" in page
    assert "1 counters" in page


def test_three_models_ship_and_the_one_that_loses_least_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    quick = {"forest": {"trees": 5}, "network": {"units": 8, "epochs": 2, "regressor_epochs": 2}}
    monkeypatch.setattr(fitting_relative, "SETTINGS", quick)
    source = CounterTable.read(folder / "programs.parquet")
    (_, _, counters), _ = feature_sets(source)
    table = table_of(source, name="programs", counters=counters, systems=tuple(SYSTEMS))
    said = list(ship_models(table, folder / "models", profiled="xeon-4"))
    found = manifest(folder / "models")
    assert {one.name for one in found.models} == {NAME, f"{NAME}-forest", f"{NAME}-network"}
    assert all("family held out (always the fastest on average: " in one.score for one in found.models)
    best = found.defaults[f"relative-performance/{ABOUT}"]
    lost = {line.split(": ")[0]: float(line.split("time lost ")[1].split("x")[0]) for line in said[:3]}
    assert lost[best] == min(lost.values())


def test_curves_end_with_all_runs_that_a_fold_learns_from(
    folder: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "RUNS", (20, 10_000, 20_000))
    comparison = load(Comparison, folder / "settings.toml")
    source = CounterTable.read(folder / "programs.parquet")
    counters = next(feature_sets(source))[2]
    table = table_of(source, name="programs", counters=counters, systems=comparison.systems)
    beside = programs.Beside(table, 1, folder / "curves" / "folds.jsonl")
    runs = [one for one in beside.points if one[1] == "runs"]
    assert [count for _, _, count in runs] == [20, 10_000]
    # What is said is what was learned from, not what was asked for.
    assert beside.point(*runs[-1]).count == len(table.runs) - len(table.runs) // 5
