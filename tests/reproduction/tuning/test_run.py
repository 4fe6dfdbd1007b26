"""`python -m reproduction tuning`: searches compared on a measured space, kept and told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.measure.tuning_table import read_table
from reproduction.__main__ import main
from reproduction.tuning.page import BUDGETS, Traces, page, summaries
from reproduction.tuning.run import own_tables
from reproduction.tuning.searchers import by_chance, kernel_tuner, ours, tpe


@pytest.fixture
def space(tmp_path: Path) -> Path:
    rows = [
        f"{x},{y},{1 + (x - 5) ** 2 + 3 * abs(y - 2) + 0.1 * ((x * y) % 3)}"
        if x * y < 60
        else f"{x},{y},CompilationFailed"
        for x in range(1, 13)
        for y in range(1, 13)
    ]
    path = tmp_path / "bowl-gpu.csv"
    path.write_text("x,y,milliseconds\n" + "\n".join(rows) + "\n")
    return path


def test_two_searches_are_compared_and_what_is_known_is_not_computed_again(tmp_path, space, capsys):
    words = ["tuning", str(space), "--searcher", "apportion", "--searcher", "random", "--seeds", "2"]
    words += ["--keep", str(tmp_path / "kept.npz"), "--out", str(tmp_path / "page.md")]
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    said = capsys.readouterr().err
    assert said.count("apportion on bowl-gpu: 2 seeds") == 1
    text = (tmp_path / "page.md").read_text()
    assert "| apportion | 2 |" in text
    assert "| bowl-gpu | 144 |" in text


@pytest.mark.parametrize("name", ["ours", "random", "tpe", "kernel-tuner"])
def test_every_search_measures_different_configurations(space, name):
    table = read_table(space)
    if name == "tpe":
        pytest.importorskip("optuna", reason="optuna is not installed")
    if name == "kernel-tuner":
        pytest.importorskip("kernel_tuner", reason="kernel_tuner is not installed")
    searchers = {"ours": ours, "random": by_chance, "tpe": tpe}
    if name == "kernel-tuner":
        order = kernel_tuner(table, 15, 0, strategy="random_sample")
    else:
        order = searchers[name](table, 15, 0)
    assert len(order) == len(set(order.tolist())) == 15
    assert max(order) < len(table.rows)


def test_what_is_kept_is_what_the_search_does_today(shared_data: Path):
    """Another search needs other numbers: python -m reproduction tuning, after taking its own out of the file."""
    table = read_table(shared_data / "tuning-spaces" / "pnpoly-rtx2080ti.csv.gz")
    kept = Traces.read(Path(__file__).parents[3] / "docs" / "results" / "tuning.npz")
    seconds = np.array(table.seconds)[ours(table, 14, 0)] / table.best
    found = np.minimum.accumulate(np.where(np.isnan(seconds), np.inf, seconds))
    assert found == pytest.approx(kept.of["apportion", table.name, 0][:14], rel=1e-5)


def test_spaces_of_our_own_stand_in_a_table_of_theirs():
    traces = Traces(sizes={"a-1": 1_000})
    for seed in range(3):
        traces.add("apportion", "a-1", seed, np.full(100, 1.2))
        traces.add("apportion", "own: dot.M1", seed, np.full(50, 1.1))
        traces.add("random", "own: dot.M1", seed, np.full(50, 1.3))
    text = page(traces)
    assert "1 programs of 1 families" in text
    assert "| apportion | 3 | 1.100 | 1.100 |" in text
    assert "| random | 3 | 1.300 | 1.300 |" in text


def test_our_own_spaces_are_every_second_family_of_the_collections():
    tables = own_tables()
    families = {name.partition(".")[0] for name in tables}
    assert len(families) == 14
    assert len(tables) == 28
    assert {len(table.rows) for table in tables.values()} == {120}


def test_the_page_says_what_was_missed():
    traces = Traces(sizes={"a-1": 1_000})
    for seed in range(3):
        traces.add("apportion", "a-1", seed, np.full(100, 1.2))
        traces.add("random", "a-1", seed, np.full(100, 1.1))
    text = page(traces)
    assert "≤ 0.95: missed" in text
    assert "20: 9.1%" in text
    assert [one["search"] for one in summaries(traces, ["a-1"])] == ["random", "apportion"]
    assert BUDGETS == (20, 50, 100)
