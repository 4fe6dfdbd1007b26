"""Published files and raw protocol buffers: read as they are, and refused when they are not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.data.npz import NpzFile
from apportion.data.published import datasets, tpugraphs, tuning_data
from apportion.data.published.tpugraphs import LayoutFile, PublishedFile, TensorGraph, TileFile
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.program import wire


def small_graph() -> TensorGraph:
    return TensorGraph(
        np.array([63, 24, 2], np.uint8), np.arange(420, dtype=np.float32).reshape(3, 140),
        np.array([[1, 0], [2, 1]], np.int64), np.array([0, 3], np.int64),
    )  # fmt: skip


def layout_file() -> LayoutFile:
    features = np.full((4, 2, 18), -1, np.float32)
    features[1:, 0, 0], features[2, 1, :2] = 1, (0, 1)
    return LayoutFile(small_graph(), np.array([1, 2]), np.array([40, 30, 20, 30]), features)


def tile_file() -> TileFile:
    features = np.arange(72, dtype=np.float32).reshape(3, 24)
    return TileFile(small_graph(), features, np.array([9, 6, 12]), np.array([9, 9, 9]))


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def saved(path: Path, **changes: np.ndarray | None) -> Path:
    """The small layout file with some arrays changed, or left out."""
    tpugraphs.write(path, layout_file())
    arrays = {**arrays_of(path), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_a_layout_and_a_tile_file_survive_being_written_and_read(tmp_path):
    tpugraphs.write(tmp_path / "a.npz", layout_file())
    read = tpugraphs.read_layout(tmp_path / "a.npz")
    assert np.array_equal(read.node_config_feat, layout_file().node_config_feat)
    assert read.config_runtime.tolist() == [40, 30, 20, 30]
    tpugraphs.write(tmp_path / "b.npz", tile_file())
    tile = tpugraphs.read_tile(tmp_path / "b.npz")
    assert np.array_equal(tile.config_feat, tile_file().config_feat)
    assert tile.relative_runtime.tolist() == [1, 6 / 9, 12 / 9]


def test_rows_come_in_chunks_and_in_order(tmp_path):
    path = saved(tmp_path / "a.npz")
    with NpzFile(path, tpugraphs.LAYOUT_MEMBERS) as file:
        parts = list(file.rows("node_config_feat", 3))
        assert [len(part) for part in parts] == [3, 1]
        assert np.array_equal(np.concatenate(parts), layout_file().node_config_feat)


def test_a_truncated_file_says_so(tmp_path):
    path = saved(tmp_path / "a.npz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(
        MalformedInput, match=r"it is no NPZ archive, or was cut short.*Download or unpack it again"
    ):
        tpugraphs.read_layout(path)


def test_a_flipped_byte_is_found(tmp_path):
    path = saved(tmp_path / "a.npz")
    data = bytearray(path.read_bytes())
    data[data.index(np.array([40, 30, 20, 30], np.int64).tobytes())] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(MalformedInput, match="config_runtime cannot be read"):
        tpugraphs.read_layout(path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config_runtime": np.ones(4, np.float32)}, r"config_runtime has type float32 and shape \(4,\), not type int64"),
        ({"node_opcode": np.array([1, 2, 3], np.int32)}, "node_opcode has type int32"),
        ({"node_opcode": np.array([1, 121, 3], np.uint8)}, "node 1 has the unknown opcode 121; there are 1 to 120"),
        ({"config_runtime": np.array([4, 0, 2, 1])}, "configuration 1 has a runtime of 0 ns beside others"),
        ({"node_config_ids": np.array([1, 7])}, "node_config_ids has 7, which is not below 3"),
        ({"edge_index": np.array([[0, -1]])}, "edge_index has -1, which is not below 3"),
        ({"config_runtime": np.array([4, 2])}, r"node_config_feat has shape \(4, 2, 18\), not \(2, 2, 18\)"),
        ({"node_config_feat": None}, "it has no node_config_feat, only "),
        ({"node_feat": np.zeros((3, 140), np.float32, order="F")}, "in column order"),
        ({"config_runtime": np.array([{}], object)}, "Python objects, which are never unpickled"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_as_published_is_refused_with_its_name(tmp_path, changes, problem):
    path = saved(tmp_path / "bad.npz", **changes)
    with pytest.raises(MalformedInput, match=problem) as raised:
        tpugraphs.read_layout(path)
    assert str(path) in str(raised.value)


def test_a_test_file_has_no_truth():
    tile = TileFile(
        small_graph(), np.zeros((2, 24), np.float32), np.zeros(2, np.int64), np.zeros(2, np.int64)
    )
    with pytest.raises(InvalidSetting, match="runtimes are all zero"):
        _ = tile.relative_runtime


def test_a_file_that_is_not_there_is_unreadable(tmp_path):
    with pytest.raises(UnreadableFile, match="No such file"):
        tpugraphs.read_tile(tmp_path / "none.npz")


def test_folders_say_the_collection_and_the_side(tmp_path):
    for place in ("layout/nlp/random/train", "tile/xla/test"):
        (tmp_path / place).mkdir(parents=True)
    saved(tmp_path / "layout/nlp/random/train" / "bert.npz")
    tpugraphs.write(tmp_path / "tile/xla/test" / "fusion.1.npz", tile_file())
    found = [(file.collection, file.side, file.name) for file in tpugraphs.files(tmp_path)]
    assert found == [("layout:nlp:random", "train", "bert"), ("tile:xla", "test", "fusion.1")]
    kinds = [type(read).__name__ for _, read in datasets.load("tpugraphs")(tmp_path)]
    assert kinds == ["LayoutFile", "TileFile"]


def test_a_folder_that_says_nothing_needs_words(tmp_path):
    saved(tmp_path / "a.npz")
    with pytest.raises(InvalidSetting, match="Say its collection and side: --collection layout:xla:random"):
        tpugraphs.files(tmp_path)
    (entry,) = tpugraphs.files(tmp_path, collection="layout:xla:random", side="valid")
    assert entry == PublishedFile(tmp_path / "a.npz", "layout:xla:random", "valid")
    with pytest.raises(UnknownName, match=r"No side of the split called 'val'\. Did you mean 'valid'"):
        PublishedFile(tmp_path / "a.npz", "tile:xla", "val")


def test_evaluation_indices_are_read_by_collection(tmp_path):
    (tmp_path / "xla_random.json").write_text(json.dumps({"alexnet": [3, 1]}))
    assert tpugraphs.read_evaluation(tmp_path) == {"layout:xla:random": {"alexnet": [3, 1]}}
    (tmp_path / "xla_random.json").write_text("[1]")
    with pytest.raises(MalformedInput, match="no evaluation indices"):
        tpugraphs.read_evaluation(tmp_path)


def run_bytes(nanoseconds: int, *, error: bool = False, default: bool = False) -> bytes:
    """A ConfigProfile that tiles its output by 2 × 3."""
    tile = wire.message([(1, wire.message([(2, wire.packed([2, 3]))]))])
    return wire.message(
        [(1, tile), (3, int(error)), (4, wire.message([(4, nanoseconds)])), (5, int(default))]
    )


def test_raw_runs_that_failed_are_left_out_and_the_default_normalizes(tmp_path):
    module = wire.message([(1, b"fusion.7")])
    runs = [run_bytes(50, default=True), run_bytes(0, error=True), run_bytes(75)]
    data = wire.message([(1, module), *((3, run) for run in runs)])
    (tmp_path / "x.pb").write_bytes(wire.message([(1, data)]))
    (read,) = tuning_data.read_op_tuning_data(tmp_path / "x.pb")
    assert (read.name, read.failed, read.config_runtime.tolist()) == ("fusion.7", 1, [50, 75])
    assert read.config_runtime_normalizers.tolist() == [50, 50]
    assert read.features[0].tolist() == [0] * 8 + [2, 3, 0, 0, 0, 0, 5, 6] + [0] * 8


def test_raw_data_cut_short_say_so(tmp_path):
    (tmp_path / "x.pb").write_bytes(wire.message([(1, b"12345678")])[:-3])
    with pytest.raises(MalformedInput, match="no tuning data, or it was cut short"):
        tuning_data.read_module_tuning_data(tmp_path / "x.pb")


@pytest.fixture
def samples(shared_data: Path) -> Path:
    folder = shared_data / "tpugraphs"
    if not folder.is_dir():
        pytest.skip(f"no TpuGraphs samples at {folder}")
    return folder


def test_the_real_samples_are_written_back_as_they_were_read(samples, tmp_path):
    paths = [samples / "layout-main-10904.npz", *sorted((samples / "tile").glob("*.npz"))]
    assert len(paths) == 16
    for path in paths:
        read = tpugraphs.read_tile if path.parent.name == "tile" else tpugraphs.read_layout
        tpugraphs.write(tmp_path / path.name, read(path))
        ours, theirs = arrays_of(tmp_path / path.name), arrays_of(path)
        assert set(ours) == set(theirs)
        for name, array in theirs.items():
            assert ours[name].dtype == array.dtype
            assert np.array_equal(ours[name], array)


def test_the_raw_samples_hold_what_the_npz_samples_hold(samples):
    raw = tuning_data.read_module_tuning_data(samples / "module_tuning_data_layout.pb")
    layout = tpugraphs.read_layout(samples / "layout-main-10904.npz")
    assert (raw.name, raw.failed) == ("main__.10904", 10)
    assert np.array_equal(raw.features, layout.node_config_feat)
    assert np.array_equal(raw.config_runtime, layout.config_runtime)
    assert np.array_equal(raw.node_config_ids, layout.node_config_ids)
    kernels = tuning_data.read_op_tuning_data(samples / "op_tuning_data.pb")
    assert len(kernels) == 15
    for kernel in kernels:
        tile = tpugraphs.read_tile(samples / "tile" / f"{kernel.name}.npz")
        assert np.array_equal(kernel.features, tile.config_feat)
        assert np.array_equal(kernel.config_runtime, tile.config_runtime)
        assert np.array_equal(kernel.config_runtime_normalizers, tile.config_runtime_normalizers)
