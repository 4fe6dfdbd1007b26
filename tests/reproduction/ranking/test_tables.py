"""The paper's tables in form: parts, cells, averages, and the page they go into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from apportion.data.packing import pack, unpack
from apportion.data.published import tpugraphs
from apportion.data.published.tpugraphs import LayoutFile
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.learn.ranking.rankings import RankedGraph
from apportion.settings import load
from apportion.testing.ranker_checks import layout_graph, tile_graph
from reproduction.ranking.page import collection_table, published_tables, put
from reproduction.ranking.tables import (
    LAYOUT_SAMPLES,
    Cell,
    Part,
    Reproduction,
    Variant,
    average,
    parts_of_samples,
    parts_of_store,
    run,
)

EXPERIMENT = Path(__file__).parents[3] / "experiments" / "tensor-ranking.toml"


def plan(**changes: object) -> Reproduction:
    network = {"width": 4, "opcode_width": 2}
    settings = {
        "variants": (Variant("GNN", network), Variant("GNN + attention", {**network, "attention": "nodes"})),
        "batches": (2,), "epochs": (1, 2), "lists": 4, "sampled": 8, "seeds": 2, "baselines": ("random",),
    }  # fmt: skip
    return Reproduction(**{**settings, **changes})  # type: ignore[arg-type]


def parts() -> list[Part]:
    layouts, tiles = [layout_graph(seed) for seed in range(3)], [tile_graph(seed) for seed in range(3)]
    return [
        Part("layout:xla:random", ((layouts[:2], layouts[2:]),)),
        Part("tiles", ((tiles[:2], tiles[2:]),)),
    ]


def test_every_cell_is_made_once_and_kept(tmp_path: Path) -> None:
    said: list[str] = []
    cells = run(plan(), parts(), tmp_path / "cells.jsonl", report=said.append)
    assert len(cells) == 2 * (1 + 2 * 2)
    assert len(said) == 2 * len(cells)  # two seeds
    assert all(len(cell.seeds) == 2 and cell.pairs > 0 for cell in cells)
    assert run(plan(), parts(), tmp_path / "cells.jsonl", report=said.append) == cells
    assert len(said) == 2 * len(cells)
    tables = published_tables(plan(), parts(), cells)
    assert "| GNN | " in tables
    assert "**Table 4 in form**: OPA of GNN + attention, 2 epochs" in tables
    assert "| layout:xla:random | 1 | " in tables
    assert "| 0.571 | 0.857 | 0.714 |" in tables  # as published, for its three sizes of a batch
    assert "**Table 5 in form**" in tables


def test_a_line_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    small = plan(epochs=(1,), seeds=1)
    said: list[str] = []
    cells = run(small, parts(), tmp_path / "cells.jsonl", report=said.append)
    text = (tmp_path / "cells.jsonl").read_text()
    (tmp_path / "cells.jsonl").write_text(text[:-40])
    assert run(small, parts(), tmp_path / "cells.jsonl", report=said.append) == cells
    assert len(said) == len(cells) + 1


def test_an_average_weighs_parts_alike_and_takes_each_ones_official_measure() -> None:
    def cell(part: str, **measures: float) -> Cell:
        return Cell("GNN", 1, 1, part, ((RankedGraph("g", "x", 9, 36, 0, measures),),))

    cells = [cell("a", opa=0.5, tau_b=0.0), cell("b", opa=0.9, tau_b=0.8, tile_score=0.95)]
    assert average(cells, "GNN", 1, 1, "opa").value == pytest.approx(0.7)
    assert average(cells, "GNN", 1, 1, "official").value == pytest.approx((0.0 + 0.95) / 2)


def test_the_experiment_file_is_one() -> None:
    assert [variant.name for variant in load(Reproduction, EXPERIMENT).variants][:2] == [
        "GNN",
        "GNN + attention",
    ]
    with pytest.raises(InvalidSetting, match="at least 1, sampled 2"):
        plan(sampled=1)
    with pytest.raises(InvalidSetting, match="must each name at least one"):
        plan(variants=())


def test_a_store_gives_a_part_for_each_collection_with_both_sides(tmp_path: Path) -> None:
    for side in ("train", "valid"):
        place = tmp_path / "npz/layout/nlp/random" / side
        place.mkdir(parents=True)
        file = unpack(layout_graph(3 + len(side)))
        assert isinstance(file, LayoutFile)
        tpugraphs.write(place / "g.npz", file)
    store = pack(tpugraphs.files(tmp_path / "npz"), tmp_path / "store")
    (part,) = parts_of_store(store, evaluated=10)
    assert (part.name, part.kind) == ("layout:nlp:random", "layout")
    ((training, validation),) = part.folds
    assert (training[0].configurations, validation[0].configurations) == (40, 10)
    (tmp_path / "npz/layout/nlp/random/valid/g.npz").unlink()
    alone = pack(tpugraphs.files(tmp_path / "npz"), tmp_path / "alone")
    with pytest.raises(InvalidSetting, match="no collection with graphs of the sides train and valid"):
        parts_of_store(alone, evaluated=10)


def test_samples_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=LAYOUT_SAMPLES[0]):
        parts_of_samples(tmp_path, tmp_path, evaluated=10)


def test_the_public_samples_make_three_parts(tmp_path: Path, shared_data: Path) -> None:
    found = parts_of_samples(shared_data / "tpugraphs", tmp_path, evaluated=100)
    assert [len(part.folds) for part in found] == [2, 2, 3]
    unseen, graphs, tiles = found
    for training, tested in unseen.folds:
        assert training[0].name == tested[0].name
        known = {row.tobytes() for row in np.asarray(training[0].codes)}
        assert not any(row.tobytes() in known for row in np.asarray(tested[0].codes))
    assert graphs.folds[0][0][0].name == graphs.folds[1][1][0].name
    assert tiles.kind == "tile"


def test_a_section_of_a_page_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- end of x -->\nafter\n")
    put(page, "x", "new")
    put(page, "x", "newer")
    assert page.read_text() == "before\n<!-- x -->\n\nnewer\n\n<!-- end of x -->\nafter\n"
    with pytest.raises(MalformedInput, match="has no marks <!-- y -->"):
        put(page, "y", "new")
    assert collection_table([]) == ""
