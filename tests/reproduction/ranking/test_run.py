"""`python -m reproduction tensor-ranking`: tables from a store and from a collection, into a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.errors import MalformedInput
from reproduction.ranking.page import prepare, put

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from apportion.data.packing import unpack
from apportion.data.published import tpugraphs
from apportion.testing.ranker_checks import layout_graph, tile_graph
from reproduction.__main__ import main as reproduce

PAGE = "".join(
    f"<!-- {name} -->\n<!-- end of {name} -->\n"
    for name in ("tables of the paper", "measure a few", "broadcast on a GPU", "our own collection")
)
TABLES = """
batches = [2]
epochs = [1]
lists = 2
sampled = 8
seeds = 1
baselines = ["random"]
[[variants]]
name = "small"
network = { width = 4, opcode_width = 2 }
"""
COMPARISON = """
folds = 2
kernel_folds = 2
[[rows]]
name = "trees"
model = "trees"
hyperparameters = { trees = 5 }
[[rows]]
name = "needs a GPU's compiler"
model = "trees"
hyperparameters = { trees = 5, features = "compiled" }
"""
STEPS = {
    "device": "NVIDIA H200", "torch": "2.11",
    "rows": [{
        "model": "mean", "nodes": 12_064, "configurations": 64, "plain_step_us": 900.0, "once_step_us": 90.0,
        "plain_score_us": 300.0, "once_score_us": 20.0, "plain_step_bytes": 4e9, "once_step_bytes": 5e8,
        "scores_apart": 3e-7,
    }],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sides of a layout collection, four tile graphs of two kernels, a page and two experiments."""
    for number, side in enumerate(("train", "valid")):
        place = tmp_path / "npz/layout/xla/random" / side
        place.mkdir(parents=True)
        tpugraphs.write(place / "g.npz", unpack(layout_graph(number)))
    place = tmp_path / "collection/tile/xla/train"
    place.mkdir(parents=True)
    for number in range(4):
        tpugraphs.write(place / f"kernel{number % 2}.M{number}.npz", unpack(tile_graph(number)))
    for name, text in (("page.md", PAGE), ("tables.toml", TABLES), ("rows.toml", COMPARISON)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        reproduce(["tensor-ranking", "--out", "page.md", "--results", "cells.jsonl", *words])
    return int(leaving.value.code or 0)


def test_tables_of_a_dataset_and_of_a_collection_go_into_the_page(folder, capsys):
    assert run("--data", "npz", "--settings", "tables.toml") == 0
    assert "Packing npz" in capsys.readouterr().err
    page = (folder / "page.md").read_text()
    assert "**Table 3 in form**" in page
    assert "| layout:xla:random | 1 | " in page
    assert run("--collection", "collection", "--comparison", "rows.toml", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["row"] for line in lines} == {"trees", "random", "heuristic default"}
    page = (folder / "page.md").read_text()
    assert "**Table 3 in form**" in page  # the other section stays
    assert "**Unseen kernels**: 4 graphs" in page
    assert "### collection" in page
    assert "*aim*" not in page.split("### collection")[1]  # aims are those of the GPU's kernels


def test_what_was_measured_on_a_gpu_goes_into_the_page(folder):
    (folder / "steps.json").write_text(json.dumps(STEPS))
    assert run("--steps", "steps.json") == 0
    row = "| mean, 12,064, 64 | 900.0 µs | 90.0 µs | 10.0 × | 300.0 µs | 20.0 µs | 15.0 × | 4,000 MB | 500 MB | 3.0e-07 |"
    assert row in (folder / "page.md").read_text()


def test_what_is_finished_is_not_run_again(folder, capsys):
    assert run("--data", "npz", "--settings", "tables.toml", "--json") == 0
    first = capsys.readouterr()
    assert "small, batch 2, 1 epochs, layout:xla:random, seed 0" in first.err
    assert run("--data", "npz", "--settings", "tables.toml", "--json") == 0
    second = capsys.readouterr()
    assert "seed 0" not in second.err
    assert second.out == first.out


def test_workers_share_what_is_not_finished_and_leave_the_page_alone(folder, capsys):
    words = (
        "--data", "npz", "--settings", "tables.toml", "--collection", "collection", "--comparison", "rows.toml",
    )  # fmt: skip
    for worker in ("1/2", "2/2"):
        assert run(*words, "--worker", worker) == 0
    assert (folder / "page.md").read_text() == PAGE
    kept = (folder / "cells.jsonl").read_bytes()
    assert run(*words) == 0
    assert (folder / "cells.jsonl").read_bytes() == kept
    capsys.readouterr()
    assert run(*words, "--worker", "3/2") == 1
    assert "I from 1 to N, not 3/2" in capsys.readouterr().err


def test_without_data_it_says_what_to_give(folder, capsys):
    assert run() == 1
    assert "Give --data, a folder of TpuGraphs files" in capsys.readouterr().err


def test_recorded_steps_have_columns_of_their_own(folder):
    row = {**STEPS["rows"][0], "plain_step_recorded_us": 800.0, "once_step_recorded_us": 40.0}
    (folder / "steps.json").write_text(json.dumps({**STEPS, "rows": [row]}))
    assert run("--steps", "steps.json") == 0
    assert "| 900.0 µs | 90.0 µs | 10.0 × | 800.0 µs | 40.0 µs | 20.0 × |" in (folder / "page.md").read_text()


def test_a_page_that_is_not_there_is_begun_and_one_without_marks_refused_at_once(tmp_path):
    prepare(tmp_path / "new" / "page.md", ["one", "two"])
    put(tmp_path / "new" / "page.md", "two", "words")
    assert "<!-- two -->\n\nwords\n\n<!-- end of two -->" in (tmp_path / "new" / "page.md").read_text()
    (tmp_path / "old.md").write_text("# Something else\n")
    with pytest.raises(MalformedInput, match=r"old\.md: has no marks <!-- one --> and <!-- end of one -->"):
        prepare(tmp_path / "old.md", ["one"])
