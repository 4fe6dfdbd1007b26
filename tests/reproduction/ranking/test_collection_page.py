"""Markdown about measured configurations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.errors import UnreadableFile
from apportion.learn.ranking.recorded_runs import GraphRuns
from reproduction.__main__ import main
from reproduction.ranking.collection_page import collection_page, recorded_table, replay


def runs(name: str, slow: float) -> GraphRuns:
    """Forty configurations with a valley at tile 64 and stage 3; one more failed."""
    tile, stage = np.meshgrid([16, 32, 64, 128, 256], [1, 2, 3, 4, 5, 6, 7, 8], indexing="ij")
    parameters = np.stack([tile.ravel(), stage.ravel()], 1)
    runtime = slow * (1000 + 300 * np.abs(np.log2(parameters[:, 0]) - 6) + 40 * np.abs(parameters[:, 1] - 3))
    repeats = runtime[:, None] * [1.0, 1.01, 0.99, 1.0]
    return GraphRuns(
        name, "a GPU", ("TILE", "STAGES"), parameters, repeats.round().astype(np.int64),
        np.zeros((40, 24), np.float32), 0, np.array([[512, 9]]), ("OutOfResources: shared memory",),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, slow in (("product.M1", 10), ("product.M2", 20), ("softmax.M1", 5)):
        runs(name, slow).write(tmp_path / "tiles" / "runs" / f"{name}.npz")
    return tmp_path / "tiles"


def test_a_page_says_what_there_is_its_ceiling_and_what_failed(folder):
    page = collection_page([folder], [12])
    assert (
        "On a GPU: 3 graphs of 2 families, 120 configurations (40 to 40 of a graph), 480 timed runs." in page
    )
    assert "3 needed more shared memory or registers than there are" in page
    assert "| product | 2 | 80 | 10 … 20 | 1.8 | 68.0% |" in page
    assert "| **all** | 3 | 120 |" in page


def test_tuning_with_a_model_beats_drawing_as_many_by_chance():
    found = replay([runs("product.M1", 10), runs("product.M2", 20)], 12, 2)
    assert found.tuned.value < found.drawn.value
    assert found.tau_b.value > 0.5


def test_the_command_writes_the_page_and_a_folder_without_runs_is_refused(folder, tmp_path):
    with pytest.raises(SystemExit):
        main(["collect", "describe", str(folder), "--budgets", "12", "--out", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text().startswith("# Collections of our own")
    with pytest.raises(UnreadableFile, match="There are no runs in"):
        collection_page([tmp_path], [12])


def test_a_recorded_file_has_a_row_for_each_budget(shared_data: Path):
    path = shared_data / "tpugraphs" / "layout-xla-alexnet.npz"
    if not path.is_file():
        pytest.skip(f"no TpuGraphs sample at {path}")
    table = recorded_table(path, (100,), {100: 0.7}, 2)
    assert "29,905 different configurations" in table
    cells = table.splitlines()[-1].strip("| ").split(" | ")
    assert (cells[0], cells[-1]) == ("100", "0.70")
    assert float(cells[1].split()[0]) > float(cells[5].split()[0])  # tuned, above a plain ridge by chance
