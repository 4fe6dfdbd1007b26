"""What was measured of a graph: its file, its ceiling, its published form."""

from __future__ import annotations

import time

import numpy as np
import pytest

from apportion.data.published.tpugraphs import read_tile
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.ranking.recorded_runs import GraphRuns, ceiling, medians, read_runs, tile_features
from apportion.program.hlo.module import graph_of_hlo
from apportion.program.hlo.text import module_of_text
from reproduction.collect.base import CollectOptions

GRAPH = graph_of_hlo(module_of_text("HloModule m\nENTRY e {\n  ROOT a = f32[8,4]{1,0} parameter(0)\n}\n"))


def runs(times: list[list[int]], **changed) -> GraphRuns:
    count = len(times)
    values = {
        "name": "product.M8", "device": "a GPU", "parameter_names": ("BLOCK_M", "num_warps"),
        "parameters": np.array([[16 << place, 4] for place in range(count)]),
        "repeats": np.array(times, np.int64), "tile_features": np.ones((count, 24), np.float32), "default": 1,
        "failed_parameters": np.array([[512, 8]]), "failed_reasons": ("wrong result: relative error 0.5",),
        "compiled": {"registers": np.arange(count)}, "operands": ("f32[8,4]",),
    }  # fmt: skip
    return GraphRuns(**(values | changed))


REPEATS = [[30, 32, 31, 33], [10, 12, 11, 0], [20, 21, 90, 22]]


def test_everything_is_written_and_read_again(tmp_path):
    one = runs(REPEATS)
    one.write(tmp_path / "runs" / "product.M8.npz")
    (other,) = read_runs(tmp_path)
    for name in ("name", "device", "parameter_names", "default", "failed_reasons", "operands", "family"):
        assert getattr(other, name) == getattr(one, name)
    for name in ("parameters", "repeats", "tile_features", "failed_parameters"):
        assert np.array_equal(getattr(other, name), getattr(one, name))
    assert other.compiled["registers"].tolist() == [0, 1, 2]


def test_a_runtime_is_the_median_of_the_repeats_that_were_run():
    assert runs(REPEATS).runtime.tolist() == [32, 11, 22]
    assert runs(REPEATS).normalizers.tolist() == [11, 11, 11]
    assert runs(REPEATS, default=-1).normalizers.tolist() == [22, 22, 22]
    assert medians(np.array([[0, 7]])).tolist() == [7]


def test_the_published_form_is_read_by_the_published_reader_and_keeps_every_repeat(tmp_path):
    runs(REPEATS).write_tile(tmp_path / "product.M8.npz", GRAPH)
    tile = read_tile(tmp_path / "product.M8.npz")
    assert tile.config_runtime.tolist() == [32, 11, 22]
    assert tile.relative_runtime.min() == 1
    with np.load(tmp_path / "product.M8.npz") as arrays:
        assert arrays["config_repeats"].tolist() == REPEATS
        assert arrays["compiled_registers"].tolist() == [0, 1, 2]


def test_the_ceiling_is_how_one_half_ranks_by_the_other():
    same = ceiling(np.array([[10, 11, 10, 11], [20, 21, 20, 21], [30, 31, 30, 31]]))
    assert (same.tau_b, same.opa, same.slowdown) == (1, 1, 0)
    turned = ceiling(np.array([[10, 30, 10, 30], [20, 20, 20, 20], [30, 10, 30, 10]]))
    assert (turned.tau_b, turned.slowdown) == (-1, 2)
    with pytest.raises(InvalidSetting, match="two repeats of every configuration"):
        ceiling(np.array([[10, 0], [10, 11]]))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"repeats": np.zeros((3, 4), np.int64)}, "configuration 0 was never measured"),
        ({"repeats": np.ones((2, 4), np.int64)}, "not repeats and features for all 3"),
        ({"default": 3}, "the default is configuration 3 of 3"),
        ({"failed_reasons": ()}, "each failed configuration needs its reason"),
    ],
)
def test_impossible_runs_are_refused(changed, problem):
    with pytest.raises(InvalidSetting, match=problem):
        runs(REPEATS, **changed)


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "runs" / "product.M8.npz"
    runs(REPEATS).write(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(MalformedInput, match=r"product.M8.npz: it is no NPZ archive, or was cut short"):
        list(read_runs(tmp_path))


def test_a_configuration_becomes_bounds_with_their_sums_and_products():
    one = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 4, "num_stages": 3}
    row = tile_features(one, ("num_warps", "num_stages", "GROUP"), ("BLOCK_M", "BLOCK_N"), ("BLOCK_K",))
    assert row[:8].tolist() == [4, 3, 1, 0, 0, 0, 8, 12]
    assert row[8:16].tolist() == [64, 32, 0, 0, 0, 0, 96, 2048]
    assert row[16:].tolist() == [16, 0, 0, 0, 0, 0, 16, 16]
    assert tile_features(one, (), ("BLOCK_M",), ())[16:].tolist() == [0] * 8


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"rounds": 1}, "rounds must be at least 2, not 1"),
        ({"configurations": 1}, "configurations must be at least 2, not 1"),
        ({"shapes": 0}, "shapes must be at least 1, not 0"),
        ({"seconds": 0}, "seconds must be positive, not 0"),
    ],
)
def test_impossible_options_are_refused(changed, problem):
    with pytest.raises(InvalidSetting, match=problem):
        CollectOptions(**changed)


def test_no_graph_is_begun_after_the_time_for_measuring():
    assert list(CollectOptions().in_time("abc")) == ["a", "b", "c"]
    begun = CollectOptions(measure_seconds=0.2).in_time("abc")
    assert next(begun) == "a"
    time.sleep(0.3)
    assert list(begun) == []
