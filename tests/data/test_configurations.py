"""The memory-mapped store: lossless, resumable, and small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion import settings
from apportion.data import packing
from apportion.data.configurations import ConfigurationStore, graph_path
from apportion.data.packing import OptionTable, pack, unpack
from apportion.data.published import tpugraphs
from apportion.data.published.tpugraphs import LayoutFile, PublishedFile, TensorGraph, TileFile
from apportion.data.tensors import map_tensors, write_tensors
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile

GRAPH = TensorGraph(
    np.array([63, 24, 2], np.uint8), np.arange(420, dtype=np.float32).reshape(3, 140),
    np.array([[1, 0], [2, 1]]), np.array([0, 3]),
)  # fmt: skip


def written(folder: Path, file: LayoutFile | TileFile, name: str = "a") -> PublishedFile:
    folder.mkdir(exist_ok=True)
    tpugraphs.write(folder / f"{name}.npz", file)
    kind = "tile:xla" if isinstance(file, TileFile) else "layout:xla:random"
    return PublishedFile(folder / f"{name}.npz", kind, "valid")


def layout(configurations: int, *, options: int = 3, seed: int = 0) -> LayoutFile:
    random = np.random.default_rng(seed)
    table = random.permutation(options * 2 * 18).reshape(options, 2, 18).astype(np.float32)
    codes = random.integers(0, options, (configurations, 2))
    runtime = random.integers(1_000, 9_000, configurations)
    return LayoutFile(GRAPH, np.array([0, 2]), runtime, table[codes, np.arange(2)])


def same(a: LayoutFile, b: LayoutFile) -> bool:
    fields = ("node_config_ids", "config_runtime", "node_config_feat")
    equal = [getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in fields]
    graph = ("node_opcode", "node_feat", "edge_index", "node_splits")
    return all(equal) and all(np.array_equal(getattr(a.graph, n), getattr(b.graph, n)) for n in graph)


def test_a_packed_file_can_be_had_back_bit_by_bit(tmp_path):
    file = layout(50)
    file.node_config_feat[3, 0, 5], file.node_config_feat[4, 0, 5] = -0.0, 1e-45
    store = pack([written(tmp_path / "npz", file)], tmp_path / "store")
    stored = store.graph(0)
    assert stored.codes.dtype == np.uint8
    assert same(unpack(stored), file)


def test_more_than_256_options_take_two_bytes_and_chunks_before_are_widened(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "CHUNK_BYTES", 4 * 2 * 18 * 100)
    file = layout(2_000, options=400)
    stored = pack([written(tmp_path / "npz", file)], tmp_path / "store").graph(0)
    assert stored.codes.dtype == np.uint16
    assert stored.option_counts.max() > 256
    assert same(unpack(stored), file)


def test_a_tile_file_can_be_had_back(tmp_path):
    features = np.arange(72, dtype=np.float32).reshape(3, 24)
    file = TileFile(GRAPH, features, np.array([9, 6, 12]), np.array([9, 9, 9]))
    stored = pack([written(tmp_path / "npz", file)], tmp_path / "store").graph(0)
    back = unpack(stored)
    assert np.array_equal(back.config_feat, features)
    assert stored.truth.tolist() == [1, 6 / 9, 12 / 9]


@given(
    st.lists(st.lists(st.integers(-1, 2), min_size=4, max_size=4), min_size=1, max_size=40), st.integers(1, 7)
)
def test_codes_stand_for_the_features_they_were_made_of(rows, chunk):
    features = np.array(rows, np.float32).reshape(-1, 2, 2)
    table = OptionTable(2)
    codes = np.concatenate([table.codes(features[i : i + chunk]) for i in range(0, len(features), chunk)])
    arrays = table.arrays(2)
    assert np.array_equal(arrays["options"][arrays["option_offset"][:-1] + codes], features)
    assert table.largest == max(len({tuple(row) for row in features[:, node].tolist()}) for node in range(2))


def test_duplicates_are_kept_once_with_the_mean_of_their_runtimes(tmp_path):
    features = np.zeros((4, 1, 18), np.float32)
    features[1] = 1
    file = LayoutFile(GRAPH, np.array([1]), np.array([10, 50, 13, 20]), features)
    evaluation = {"layout:xla:random": {"a": [1, 3]}}
    out = tmp_path / "store"
    stored = pack([written(tmp_path / "npz", file)], out, deduplicate=True, evaluation=evaluation).graph(0)
    assert stored.runtime.tolist() == [43 / 3, 50]
    assert stored.evaluation.tolist() == [0, 1]
    assert stored.in_order_of_files(np.array([7, 8])).tolist() == [7, 8, 7, 7]
    with pytest.raises(InvalidSetting, match="packed without its duplicates"):
        unpack(stored)


def test_evaluation_indices_are_kept_and_checked(tmp_path):
    entry = written(tmp_path / "npz", layout(5))
    kept = pack([entry], tmp_path / "s", evaluation={"layout:xla:random": {"a": [4, 2]}}).graph(0)
    assert kept.evaluation.tolist() == [4, 2]
    with pytest.raises(MalformedInput, match="evaluation indices reach 5, but it has 5 configurations"):
        pack([entry], tmp_path / "t", evaluation={"layout:xla:random": {"a": [5]}})
    assert [path for path in (tmp_path / "t").rglob("*") if path.is_file()] == []


def test_what_a_killed_process_left_beside_a_graph_that_is_packed_is_removed(tmp_path):
    entry, out = written(tmp_path / "npz", layout(5)), tmp_path / "store"
    pack([entry], out)
    files = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    left = out / "layout-xla-random" / "valid" / ".a.safetensors.codes.1-1.part"
    left.write_text("of a process that was killed after the graph was there")
    settings._swept.clear()  # as in a new process
    pack([entry], out)
    assert sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file()) == files


def test_packing_goes_on_where_it_was(tmp_path):
    files = [written(tmp_path / "npz", layout(9, seed=i), f"g{i}") for i in range(3)]
    bad = tmp_path / "npz" / "g1.npz"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:100])
    with pytest.raises(MalformedInput, match="g1"):
        pack(files, tmp_path / "store")
    with pytest.raises(UnreadableFile, match=r"no finished store .* Make one with: apportion rank pack"):
        ConfigurationStore.open(tmp_path / "store")
    first = graph_path(tmp_path / "store", "layout:xla:random", "valid", "g0")
    before = first.stat().st_mtime_ns
    bad.write_bytes(whole)
    store = pack(files, tmp_path / "store")
    assert first.stat().st_mtime_ns == before
    assert [entry["name"] for entry in store.entries] == ["g0", "g1", "g2"]
    assert not list((tmp_path / "store").rglob("*.codes"))
    written(tmp_path / "npz", layout(8, seed=5), "g0")
    assert pack(files, tmp_path / "store").graph(0).configurations == 8


def test_packing_into_a_store_adds_to_what_it_holds(tmp_path):
    first = written(tmp_path / "npz", layout(9), "g0")
    other = PublishedFile(written(tmp_path / "npz", layout(5), "g1").path, "layout:nlp:random", "test")
    pack([first], tmp_path / "store")
    store = pack([other], tmp_path / "store")
    assert [(e["collection"], e["side"], e["name"]) for e in store.entries] == [
        ("layout:xla:random", "valid", "g0"), ("layout:nlp:random", "test", "g1"),
    ]  # fmt: skip
    assert [graph.configurations for graph in ConfigurationStore.open(tmp_path / "store").graphs()] == [9, 5]
    written(tmp_path / "npz", layout(7, seed=3), "g0")
    assert [graph.configurations for graph in pack([first], tmp_path / "store").graphs()] == [7, 5]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_features_that_are_no_numbers_are_refused(tmp_path, wrong):
    file = layout(9)
    file.node_config_feat[7, 1, 3] = wrong
    with pytest.raises(
        InvalidSetting, match=r"node_config_feat\[7, 1, 3\] is -?(nan|inf), which is no number"
    ):
        LayoutFile(file.graph, file.node_config_ids, file.config_runtime, file.node_config_feat)
    with pytest.raises(MalformedInput, match=r"a\.npz: node_config_feat\[7, 1, 3\] is"):
        pack([written(tmp_path / "npz", file)], tmp_path / "store")
    nodes = GRAPH.node_feat.copy()
    nodes[2, 5] = wrong
    with pytest.raises(InvalidSetting, match=r"node_feat\[2, 5\] is"):
        TensorGraph(GRAPH.node_opcode, nodes, GRAPH.edge_index, GRAPH.node_splits)
    tile = np.zeros((2, 24), np.float32)
    tile[1, 0] = wrong
    with pytest.raises(InvalidSetting, match=r"config_feat\[1, 0\] is"):
        TileFile(GRAPH, tile, np.array([5, 6]), np.array([5, 5]))


def test_a_row_that_is_no_number_is_named_by_its_place_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "CHUNK_BYTES", 4 * 2 * 18 * 4)
    file = layout(9)
    file.node_config_feat[7, 1, 3] = np.nan
    with pytest.raises(MalformedInput, match=r"node_config_feat\[7, 1, 3\]"):
        pack([written(tmp_path / "npz", file)], tmp_path / "store")


def test_a_node_that_is_configurable_twice_is_refused():
    file = layout(3)
    with pytest.raises(InvalidSetting, match="node_config_ids has node 2 2 times, not once"):
        LayoutFile(GRAPH, np.array([2, 2]), file.config_runtime, file.node_config_feat)


def test_a_sample_has_different_configurations_and_their_codes(tmp_path):
    stored = pack([written(tmp_path / "npz", layout(500))], tmp_path / "store").graph(0)
    chosen, codes = stored.sample(np.random.default_rng(1), 64)
    assert len(set(chosen.tolist())) == 64
    assert np.array_equal(codes, stored.codes[chosen])
    assert len(stored.sample(np.random.default_rng(1), 900)[0]) == 500


def test_graphs_are_found_by_collection_and_side(tmp_path):
    store = pack([written(tmp_path / "npz", layout(5))], tmp_path / "store")
    assert [graph.name for graph in store.graphs(side="valid")] == ["a"]
    assert list(store.graphs(collection="tile:xla")) == []
    with pytest.raises(UnknownName, match="No collection called 'tile'"):
        list(store.graphs(collection="tile"))


def test_a_graph_cut_short_is_refused_and_packed_again(tmp_path):
    entry = written(tmp_path / "npz", layout(5))
    store = pack([entry], tmp_path / "store")
    path = graph_path(tmp_path / "store", "layout:xla:random", "valid", "a")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(MalformedInput, match=r"It is damaged .* Delete it and pack again"):
        store.graph(0)
    assert same(unpack(pack([entry], tmp_path / "store").graph(0)), layout(5))


def test_zero_runtimes_are_no_truth(tmp_path):
    file = layout(4)
    test = LayoutFile(file.graph, file.node_config_ids, np.zeros(4, np.int64), file.node_config_feat)
    stored = pack([written(tmp_path / "npz", test)], tmp_path / "store").graph(0)
    assert not stored.labelled
    with pytest.raises(InvalidSetting, match="a: its runtimes are all zero"):
        _ = stored.truth


def test_other_programs_read_the_files(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(3, dtype=np.uint8), "b": np.arange(4, dtype=np.int64).reshape(2, 2)}
    write_tensors(tmp_path / "x.safetensors", arrays, {"made": "here"})
    theirs = safetensors.load_file(tmp_path / "x.safetensors")
    ours, metadata = map_tensors(tmp_path / "x.safetensors")
    assert metadata == {"made": "here"}
    for name, array in arrays.items():
        assert np.array_equal(theirs[name], array)
        assert np.array_equal(ours[name], array)


def test_the_real_alexnet_is_packed_without_loss_into_a_fraction(shared_data, tmp_path):
    path = shared_data / "tpugraphs" / "layout-xla-alexnet.npz"
    if not path.exists():
        pytest.skip(f"no sample at {path}")
    stored = pack([PublishedFile(path, "layout:xla:random", "train")], tmp_path / "store").graph(0)
    assert stored.codes.shape == (47_712, 26)
    assert stored.option_counts.max() == 9
    with np.load(path) as file:
        features = file["node_config_feat"]
        assert np.array_equal(stored.runtime, file["config_runtime"])
    assert features.nbytes == 72 * stored.codes.nbytes
    for first in range(0, len(features), 8_000):
        part = slice(first, first + 8_000)
        assert np.array_equal(stored.features(stored.codes[part]), features[part])
