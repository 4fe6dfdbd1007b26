"""A kernel model as an ONNX graph: its answers are those of NumPy."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from apportion.advise.predictor import CONFIDENCE, forests_model
from apportion.data.records import CLASSES
from apportion.data.scaling import Standard
from apportion.learn import engines
from apportion.learn.forest import Forest
from apportion.learn.shares.kernel_model import ConformalScores, Familiarity, KernelModel
from apportion.learn.shares.nearest_launches import Memory
from apportion.learn.shares.pooled import MEMBERS, Pooled
from apportion.program.kernel.features import INPUTS, RANGE_INPUTS, inputs_of

pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
PAIRS = ("cgo17-nvidia", "cgo17-amd")
Rows = tuple[np.ndarray, np.ndarray]


def launches(model: KernelModel) -> dict[str, Rows]:
    """Code and inputs: as learned from, known code with new sizes, strange code with known sizes, and both new."""
    memory, random = model.pool.memory, np.random.default_rng(0)
    some = random.permutation(len(memory.code))[:150]
    known = memory.code[some].astype(np.float64)
    strange = np.abs(known * (1 + 0.2 * random.normal(size=known.shape)))
    moved = np.round(np.expm1(memory.sizes[some])).astype(int).tolist()
    learned = np.array([inputs_of(size, group) for size, group in moved])
    new = np.array([inputs_of(3 * size + 64, 2 * group) for size, group in moved])
    return {
        "known": (known, learned), "resized": (known, new),
        "strange": (strange, learned), "new": (strange, new),
    }  # fmt: skip


def assert_most_votes(model: KernelModel, code: np.ndarray, inputs: np.ndarray, classes: list[int]) -> None:
    """No class has more votes; where two have equally many, rounding decides in NumPy."""
    votes = model.pool.votes(np.hstack([code, inputs]))
    nearest = np.abs(votes.value[:, :, None] - np.array(CLASSES)).argmin(axis=2)
    heard = np.stack([(votes.weight * (nearest == k)).sum(axis=1) for k in range(len(CLASSES))], axis=1)
    chosen = heard[np.arange(len(code)), [CLASSES.index(one) for one in classes]]
    np.testing.assert_allclose(chosen, heard.max(axis=1), atol=1e-9)


@pytest.mark.parametrize("pair", PAIRS)
def test_onnx_runtime_and_numpy_give_the_same_answers(pair: str) -> None:
    model = forests_model("load-balance", model=f"{pair}-recall")
    by_numpy, by_onnx = (engines.load(name)(model, CONFIDENCE) for name in ("numpy", "onnx"))
    for code, inputs in launches(model).values():
        ours, theirs = by_numpy(code, inputs), by_onnx(code, inputs)
        for part in ("share", "low", "high", "familiarity"):
            np.testing.assert_allclose(
                [getattr(one, part) for one in theirs],
                [getattr(one, part) for one in ours],
                atol=1e-5,
                rtol=0,
            )
        assert_most_votes(model, code, inputs, [one.share_class for one in theirs])
        (alone,) = by_onnx(code[:1], inputs[:1])
        assert alone.share == pytest.approx(theirs[0].share, abs=1e-9)


def test_the_file_is_whole_and_says_what_goes_in_and_comes_out() -> None:
    from apportion.learn.shares.onnx_forms import onnx_of
    from apportion.learn.shares.onnx_graph import SIGNATURE

    model = forests_model("load-balance", model="cgo17-nvidia-recall")
    data = onnx_of(model, confidence=0.8)
    read = onnx.load_from_string(data)
    onnx.checker.check_model(read, full_check=True)
    said = {one.key: one.value for one in read.metadata_props}
    assert (*json.loads(said["code"]), *json.loads(said["inputs"])) == model.features
    assert said["confidence"] == "0.8"
    assert json.loads(said["made_by"]) == json.loads(json.dumps(model.about))
    assert {one.name for one in (*read.graph.input, *read.graph.output)} == set(SIGNATURE)
    assert onnx_of(model, confidence=0.8) == data


def test_the_confidence_of_the_intervals_is_that_of_the_export() -> None:
    model = forests_model("load-balance", model="cgo17-nvidia-recall")
    code, inputs = launches(model)["new"]
    widths = {
        confidence: np.mean(
            [one.high - one.low for one in engines.load("onnx")(model, confidence)(code, inputs)]
        )
        for confidence in (0.5, 0.9)
    }
    ours = np.mean([one.high - one.low for one in model.estimates(code, inputs, confidence=0.5)])
    assert widths[0.5] == pytest.approx(ours)
    assert widths[0.5] < widths[0.9]


def tree(feature: int, threshold: float, low: float, high: float) -> Forest:
    """Two trees: one split, and one leaf between both answers."""
    return Forest(
        np.array([feature, 0, 0, 0], np.int16), np.array([threshold, 0, 0, 0], np.float32),
        np.array([1, 1, 2, 3], np.int32), np.array([2, 1, 2, 3], np.int32),
        np.array([0, low, high, (low + high) / 2], np.float32), np.array([0, 3], np.int32), 1,
    )  # fmt: skip


@pytest.mark.parametrize("known", [1, 3])
def test_a_small_model_that_knows_ranges_and_too_few_applications_for_an_interval(known: int) -> None:
    columns = ("nodes", *INPUTS, *RANGE_INPUTS)
    forests = {name: tree(0, 0.5, 10.0, 90.0) for name in MEMBERS}
    memory = Memory.of(
        columns[:1], np.arange(known)[:, None] * 1.0, np.full((known, 2), 4.0), np.full(known, 30.0)
    )
    near = Familiarity(
        Standard(np.zeros(1), np.ones(1)), np.array([[0.0], [1.0]], np.float32), np.array([0.2, 0.4])
    )
    model = KernelModel(
        "small", Pooled(columns, forests, memory), ConformalScores(np.ones(2), np.ones(2)), near, {"seed": 1}
    )
    code = np.array([[0.0], [1.0], [7.0]])
    inputs = np.tile(inputs_of(4096, 64, 1 << 20), (3, 1))
    by_numpy, by_onnx = (engines.load(name)(model, 0.9)(code, inputs) for name in ("numpy", "onnx"))
    assert by_numpy[0].share != by_numpy[1].share
    for ours, theirs in zip(by_numpy, by_onnx, strict=True):
        assert asdict(theirs) == pytest.approx(asdict(ours))
        assert (theirs.low, theirs.high) == (0, 100)
