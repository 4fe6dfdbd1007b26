"""The forest that answers by default: packed and read, between its grid's points, and what must not move it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion.advise.describe import describe
from apportion.advise.explain import explain
from apportion.advise.predictor import model_of, predict
from apportion.data.published.cgo17 import PAIRS
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn import engines
from apportion.learn.forest import Forest
from apportion.learn.shares.kernel_model import ConformalScores, Familiarity, share_answers
from apportion.learn.shares.kernel_query import KernelQuery
from apportion.learn.shares.share_forest import (
    CODE,
    STEP,
    ShareForest,
    columns_for,
    corners,
    packed,
    unpacked,
)
from apportion.program.kernel.features import FEATURES
from apportion.program.source import Source
from apportion.weights import manifest

SAXPY = """
float scaled(float a, float x) { return a * x; }
float added(float x, float y) { return x + y; }
kernel void saxpy(global float *x, global float *y, float a, int n) {
  int i = get_global_id(0);
  if (i < n) y[i] = added(scaled(a, x[i]), y[i]);
}
"""
LOOPS = """
kernel void smooth(global const float *x, global float *y, int n) {
  int i = get_global_id(0);
  float sum = 0;
  for (int k = 0; k < 100; k++) sum += x[(i + k) % n] * 0.01f;
  y[i] = sum;
}
"""
CHANGES = {
    "renamed": """
float times(float f, float left) { return f * left; }
float plus(float left, float right) { return left + right; }
kernel void axpy(global float *first, global float *second, float factor, int count) {
  int place = get_global_id(0);
  if (place < count) second[place] = plus(times(factor, first[place]), second[place]);
}
""",
    "commented": SAXPY.replace("int i", "// the element\n  int i /* of this work-item */"),
    "with dead code": SAXPY.replace("if (i < n)", "int unused = n * 7; if (0) y[i] = 3; if (i < n)")
    + "float never(float x) { return x * x * x; }\n",
    "reordered": SAXPY.replace(
        "float scaled(float a, float x) { return a * x; }\nfloat added(float x, float y) { return x + y; }",
        "float added(float x, float y) { return x + y; }\nfloat scaled(float a, float x) { return a * x; }",
    ),
}  # fmt: skip


def source(text: str) -> Source:
    return Source(text, "opencl", "k.cl")


def share(text: str, bytes: int = 1 << 22, group: int = 64, pair: str = "cgo17-nvidia") -> float:
    return predict(source(text), local_size=group, bytes=bytes, pair=pair).cpu_share


@pytest.mark.parametrize("pair", PAIRS)
def test_the_default_has_no_feature_that_names_a_program_by_its_sizes(pair: str) -> None:
    model = model_of(pair)
    assert isinstance(model, ShareForest)
    for name in model.columns:
        assert "zeros" not in name
        assert "bytes: " not in name
        assert name not in ("largest array", "largest constant", "mean constant")
    assert manifest().called(model.name).size < 1_500_000


@pytest.mark.parametrize("pair", PAIRS)
def test_a_thousandth_of_the_size_moves_the_share_by_at_most_two_points(pair: str) -> None:
    pytest.importorskip("ziglang")
    model = model_of(pair)
    for text in (SAXPY, LOOPS):
        graph = describe(source(text), vectorized=model.vectorized).graph
        sizes = [round(2 ** (10 + 0.37 * step)) for step in range(60)]
        sizes += [(1 << power) + off for power in (12, 20, 22, 26) for off in (-1, 0)]
        asked = [
            KernelQuery(graph, changed, 64) for size in sizes for changed in (size, round(1.001 * size) + 1)
        ]
        found = [answer.value for answer in model.answer(asked)]
        moved = np.abs(np.array(found[::2]) - np.array(found[1::2]))
        assert moved.max() <= 0.02


def test_one_byte_more_does_not_send_the_kernel_to_another_device() -> None:
    pytest.importorskip("ziglang")
    assert share(SAXPY, 4_194_304) == pytest.approx(share(SAXPY, 4_194_305), abs=1e-4)


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_nothing_moves_nothing(change: str) -> None:
    pytest.importorskip("ziglang")
    assert CHANGES[change] != SAXPY
    for pair in PAIRS:
        assert share(CHANGES[change], pair=pair) == pytest.approx(share(SAXPY, pair=pair), abs=1e-9)


def test_twice_the_work_on_both_devices_keeps_the_device() -> None:
    pytest.importorskip("ziglang")
    for pair in PAIRS:
        once = predict(source(LOOPS), local_size=64, bytes=1 << 22, pair=pair)
        twice = predict(source(LOOPS.replace("< 100", "< 200")), local_size=64, bytes=1 << 22, pair=pair)
        assert twice.device == once.device
        assert twice.cpu_share == pytest.approx(once.cpu_share, abs=0.02)


def test_between_two_points_of_the_grid_the_answer_is_their_mean() -> None:
    model = model_of("cgo17-nvidia")
    assert isinstance(model, ShareForest)
    code = np.zeros(len(FEATURES))
    ends = [round(2 ** (20 + part * STEP)) - 1 for part in (0, 0.5, 1)]
    votes = model.votes([KernelQuery(None, size, 64, known_code=code) for size in ends]).value
    np.testing.assert_allclose(votes[1], (votes[0] + votes[2]) / 2, atol=0.01)


def test_a_launch_stands_at_the_points_around_it_with_weights_that_add_up_to_one() -> None:
    code = np.zeros((3, len(FEATURES)))
    sizes = np.array([0.0, 1000.0, 2.0**20])
    plain = corners(code, sizes, np.array([1.0, 64, 256]))
    assert plain.rows.shape == (2, 3, len(columns_for(False)))
    np.testing.assert_allclose(plain.weight.sum(axis=0), 1)
    ranged = corners(code, sizes, np.array([1.0, 64, 256]), np.array([64.0, 1e6, 1e9]))
    assert ranged.rows.shape == (4, 3, len(columns_for(True)))
    np.testing.assert_allclose(ranged.weight.sum(axis=0), 1)
    at = columns_for(False).index("bytes moved")
    means = (plain.rows[:, :, at] * plain.weight).sum(axis=0)
    np.testing.assert_allclose(means, np.log2(1 + sizes))


def test_a_packed_forest_says_the_same(tmp_path: Path) -> None:
    model = model_of("cgo17-amd")
    assert isinstance(model, ShareForest)
    again = unpacked(packed(model.forest))
    rows = np.random.default_rng(0).normal(size=(20, len(CODE) + 3))
    np.testing.assert_allclose(again.each(rows), model.forest.each(rows), atol=0.05)
    model.save(tmp_path)
    query = KernelQuery(None, 4096, 64, known_code=np.ones(len(FEATURES)))
    (mine,), (theirs,) = model.answer([query]), ShareForest.load(tmp_path).answer([query])
    assert vars(mine) == vars(theirs)


def test_a_forest_whose_children_lie_elsewhere_cannot_be_packed() -> None:
    model = model_of("cgo17-amd")
    assert isinstance(model, ShareForest)
    forest = model.forest
    turned = type(forest)(
        forest.feature, forest.threshold, forest.right, forest.left, forest.value, forest.root, forest.depth
    )
    with pytest.raises(InvalidSetting, match="whose left children follow"):
        packed(turned)


def test_the_parts_of_an_explanation_add_up_to_the_answer() -> None:
    pytest.importorskip("ziglang")
    for bytes in (1 << 20, 12_345_678):
        found = explain(source(LOOPS), local_size=64, bytes=bytes)
        assert found.share == pytest.approx(100 * share(LOOPS, bytes), abs=0.01)
        assert found.inputs["bytes moved"] != 0 or found.inputs["work-group size"] != 0


def test_its_intervals_were_checked_on_applications_that_were_held_out() -> None:
    for pair in PAIRS:
        model = model_of(pair)
        assert isinstance(model, ShareForest)
        levels = {one["confidence"]: one for one in model.about["coverage"]}
        assert 0.88 <= levels[0.9]["of_applications"] <= 0.94
        held = model.about["held_out"]
        assert held["mae"]["value"] < held["always_50_mae"] - 5
        assert held["device_accuracy"]["value"] > held["always_one_device"] + 0.1


@pytest.mark.parametrize("pair", PAIRS)
def test_onnx_runtime_and_numpy_give_the_same_answers(pair: str) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    model = model_of(pair)
    assert isinstance(model, ShareForest)
    random = np.random.default_rng(0)
    queries = [
        KernelQuery(None, int(2**size), int(2**group), known_code=np.abs(random.normal(1, 1, len(FEATURES))))
        for size, group in random.uniform((4, 0), (30, 10), (40, 2))
    ]
    ours = model.answer(queries, confidence=0.9)
    theirs = share_answers(queries, model.inputs_for, engines.load("onnx")(model, 0.9), 0.9)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), abs=1e-6)
        assert one.familiarity == pytest.approx(other.familiarity)
        assert abs(one.share_class - other.share_class) <= 25  # two classes may have as many votes
    same = [one.share_class == other.share_class for one, other in zip(ours, theirs, strict=True)]
    assert np.mean(same) > 0.9


@pytest.mark.parametrize("pair", PAIRS)
def test_a_kernel_is_nearest_to_those_that_do_the_same(pair: str) -> None:
    matmul = """kernel void m(global float *a, global float *b, global float *c, int n) {
      int row = get_global_id(1), column = get_global_id(0);
      float sum = 0;
      for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
      c[row * n + column] = sum;
    }"""
    found = predict(Source(matmul, "opencl"), local_size=64, bytes=1 << 22, pair=pair).nearest
    assert len(found) == 3
    assert "mm_kernel" in found[0].kernel.replace("mm2_", "mm_").replace("mm3_", "mm_")
    assert found[0].distance <= found[1].distance <= found[2].distance


def test_what_was_answered_before_is_answered_the_same_beside_new_launches() -> None:
    queries = [
        KernelQuery(None, size, 64, known_code=np.full(len(FEATURES), float(code)))
        for code in range(3)
        for size in (1 << 10, 3 << 20)
    ]
    model = model_of("cgo17-nvidia")
    assert isinstance(model, ShareForest)
    alone = [replace(model).answer([query])[0] for query in queries]
    asked = replace(model)
    first = asked.answer(queries[:3])
    both = asked.answer(queries)
    assert [vars(one) for one in both] == [vars(one) for one in alone]
    assert [vars(one) for one in first] == [vars(one) for one in alone[:3]]


@pytest.mark.parametrize("ranged", [False, True])
def test_a_model_that_knows_ranges_asks_for_them_in_every_form(ranged: bool) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    one = np.zeros(3, np.int32)
    forest = Forest(
        np.array([len(columns_for(ranged)) - 1, 0, 0], np.int16), np.array([4.0, 0, 0], np.float32),
        np.array([1, 1, 2], np.int32), np.array([2, 1, 2], np.int32), np.array([40, 20, 60], np.float32),
        one[:1], 1,
    )  # fmt: skip
    width = len(CODE)
    known = Familiarity(
        Standard(np.zeros(width), np.ones(width)), np.zeros((1, width), np.float32), np.array([1.0])
    )
    model = ShareForest("mine", forest, ConformalScores(np.ones(20), np.ones(20)), known, ranged, {})
    query = KernelQuery(None, 4096, 64, 128 if ranged else None, known_code=np.zeros(len(FEATURES)))
    (ours,), (theirs,) = (
        model.answer([query]),
        share_answers([query], model.inputs_for, engines.load("onnx")(model, 0.9), 0.9),
    )
    assert ours.value == pytest.approx(theirs.value)
    if ranged:
        for ask in (lambda: model.answer([replace(query, work_items=None)]),
                    lambda: model.inputs_for(replace(query, work_items=None))):  # fmt: skip
            with pytest.raises(InvalidSetting, match=r"The models of mine know the range of a launch"):
                ask()
