"""Rows of features for configurations: what they say of a kernel that is known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting
from apportion.learn.ranking.rows import Multiprocessors, configuration_rows, relative_log
from apportion.program.hlo.module import OPCODES
from apportion.testing.ranker_checks import layout_graph, tile_graph


def product(*tiles: tuple[int, int, int, int, int]) -> ConfiguredGraph:
    """(512, 256) × (256, 1024), with tiles of warps, stages, rows, columns and depth."""
    features = np.zeros((3, 140), np.float32)
    for node, (rows, columns) in enumerate(((512, 256), (256, 1024), (512, 1024))):
        features[node, 21:23], features[node, 28] = (rows, columns), rows * columns
    features[2, 0] = 1
    configurations = np.zeros((len(tiles), 24), np.float32)
    for row, (warps, stages, rows, columns, depth) in zip(configurations, tiles, strict=True):
        row[:4], row[8:10], row[16] = (warps, stages, 1, 1), (rows, columns), depth
    count = len(tiles)
    arrays = {
        "node_opcode": np.array([OPCODES["parameter"]] * 2 + [OPCODES["dot"]], np.uint8),
        "node_feat": features, "edge_index": np.array([[2, 0], [2, 1]]), "node_splits": np.array([0, 3]),
        "options": configurations, "option_offset": np.array([0, count]),
        "codes": np.arange(count, dtype=np.uint8)[:, None], "config_runtime": np.arange(1, count + 1),
        "config_runtime_normalizers": np.ones(count, np.int64),
        "compiled_registers": np.full(count, 128), "compiled_spills": np.zeros(count, np.int64),
        "compiled_shared_bytes": np.full(count, 65_536),
        "compiled_programs": np.array([512 * 1024 // (tile[2] * tile[3]) for tile in tiles]),
    }  # fmt: skip
    return ConfiguredGraph("product.M512", "tile:xla", "train", arrays)


def test_each_set_of_features_begins_with_the_smaller_one() -> None:
    graph = product((4, 3, 128, 128, 64), (8, 2, 64, 32, 32))
    published, launch, compiled = (
        configuration_rows(graph, features) for features in ("published", "launch", "compiled")
    )
    np.testing.assert_array_equal(launch[:, : published.shape[1]], published)
    np.testing.assert_array_equal(compiled[:, : launch.shape[1]], launch)
    np.testing.assert_array_equal(published[:, :24], graph.arrays["options"])
    assert np.isfinite(compiled).all()


def test_relative_features_are_those_of_the_median_configuration_taken_away() -> None:
    graph = product((4, 3, 128, 128, 64), (8, 2, 64, 32, 32), (2, 4, 32, 32, 16))
    launch = configuration_rows(graph, "published").shape[1]
    compiled = configuration_rows(graph, "compiled")
    relative = configuration_rows(graph, "relative")
    np.testing.assert_array_equal(relative[:, : compiled.shape[1]], compiled)
    own = compiled[:, launch:]
    np.testing.assert_array_equal(relative[:, compiled.shape[1] :], own - np.median(own, axis=0))
    assert relative[:, compiled.shape[1]].tolist() == [0, 1, -1]  # 4, 8 and 2 warps


def test_the_graph_says_its_sizes_and_the_depth_of_its_product() -> None:
    row = configuration_rows(product((4, 3, 128, 128, 64)))[0, 24:]
    given = 512 * 256 + 256 * 1024
    np.testing.assert_allclose(row[:4], np.log2([512 * 1024, given, 256, 3]))
    assert row[10] == 1  # one dot: log2(1 + 1)


def test_a_launch_is_described_by_elements_a_thread_and_tiles_along_the_result() -> None:
    graph = product((4, 3, 128, 64, 32))
    published = configuration_rows(graph).shape[1]
    row = configuration_rows(graph, "launch")[0, published:]
    assert row[6] == np.log2(128 * 64)
    assert row[7] == np.log2(128 * 64 / (32 * 4))
    assert row[10] == np.log2(512 * 1024 / (128 * 64))
    assert row[12] == np.log2(256 / 32)
    assert row[14:18].tolist() == [np.log2(512 / 128), 1, np.log2(1024 / 64), 1]


def test_a_last_tile_that_is_half_empty_is_seen() -> None:
    graph = product((4, 3, 1024, 64, 32))
    published = configuration_rows(graph).shape[1]
    assert configuration_rows(graph, "launch")[0, published + 15] == 2  # 1,024 rows for 512


def test_registers_shared_memory_and_warps_limit_what_runs_at_once() -> None:
    graph = product((4, 3, 128, 128, 64), (16, 3, 128, 128, 64))
    launch = configuration_rows(graph, "launch").shape[1]
    rows = configuration_rows(graph, "compiled")[:, launch:]
    # 65,536 registers hold 4 programs of 4 warps with 128 registers a thread; 228 KiB hold 3 of 65 KiB.
    assert rows[:, 4].tolist() == [3, 1]
    small = configuration_rows(graph, "compiled", Multiprocessors(count=8, shared_bytes=100_000))[:, launch:]
    assert small[:, 4].tolist() == [1, 1]
    assert small[0, 6] == np.log2(32 / 8)


def test_layouts_have_means_over_their_nodes_and_no_launch() -> None:
    graph = layout_graph(0)
    rows = configuration_rows(graph)
    np.testing.assert_allclose(rows[:, :18], graph.features(graph.codes).mean(axis=1))
    with pytest.raises(InvalidSetting, match="has layouts: features = 'launch' describes GPU kernels"):
        configuration_rows(graph, "launch")


def test_without_arguments_a_graph_still_has_rows() -> None:
    graph = tile_graph(0)
    bare = ConfiguredGraph(
        "bare", "tile:xla", "train",
        {**graph.arrays, "node_opcode": np.full(4, 2, np.uint8), "node_feat": np.zeros((4, 140), np.float32)},
    )  # fmt: skip
    assert np.isfinite(configuration_rows(bare, "launch")).all()


def test_logarithms_are_relative_to_their_mean() -> None:
    np.testing.assert_allclose(relative_log(np.array([1, np.e**2])), [-1, 1])
