"""Rankers trained until they stop: kept fit by fit, whole kernels held out, curves drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

from apportion.testing.ranker_checks import tile_graph
from reproduction.ranking import converged
from reproduction.ranking.converged import parts_of, ranking_curves

GRAPHS = [
    replace(tile_graph(2 * kernel + shape), name=f"kernel{kernel}.shape{shape}")
    for kernel in range(4)
    for shape in range(2)
]
PLAN = """
folds = 2
seeds = 1
validates = 3
parts = ["made up"]
[optimisation]
learning_rate = 1e-2
max_steps = 6
validate_every = 2
[[rows]]
name = "small"
hyperparameters = { network = { configurations = "tile", width = 8, opcode_width = 4 }, sampled = 8 }
[[rows]]
name = "drawn"
model = "random"
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setattr(converged, "PARTS", {"made up": lambda collections, samples: GRAPHS})
    (tmp_path / "plan.toml").write_text(PLAN)
    return {
        "settings": tmp_path / "plan.toml", "results": tmp_path / "fits.jsonl",
        "stored": tmp_path / "stored.xz", "out": tmp_path / "page.md",
    }  # fmt: skip


def test_shapes_of_a_kernel_are_tested_together() -> None:
    part = parts_of(GRAPHS, 2)
    assert part[::2] == part[1::2]
    assert sorted(set(part)) == [0, 1]


def test_an_interrupted_comparison_goes_on_and_its_page_is_made_again(files: dict[str, Path]) -> None:
    ranking_curves(**files, fits=1)
    assert len(files["results"].read_text().splitlines()) == 1
    assert not files["out"].exists()
    ranking_curves(**files)
    assert len(files["results"].read_text().splitlines()) == 4
    page = files["out"].read_text()
    assert "8 graphs of 4 kernels, 240 configurations; 2 folds of kernels, 1 seeds." in page
    assert "| network | 2 | 4 | 6 |" in page
    assert files["out"].with_name("ranking-curves-made-up.svg").read_text().startswith("<")
    files["results"].unlink()
    ranking_curves(**files)  # of what is stored, without a fit
    assert files["out"].read_text() == page
