"""The shipped form of a model: arrays, a checksum, conformal intervals, familiarity."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.learn.forest import Forest
from apportion.learn.shares.kernel_model import FLOOR, ConformalScores, Familiarity, KernelModel, widening
from apportion.learn.shares.nearest_launches import Memory
from apportion.learn.shares.pooled import Pooled
from apportion.program.kernel.features import INPUTS

COLUMNS = ("nodes", *INPUTS)
"One feature of the code, which is column 0 of every forest but that on inputs."
LAUNCH = np.array([9.0, 0, 0, 0, 0])


def stump(low: tuple[float, float], high: tuple[float, float], feature: int = 0) -> Forest:
    """Two trees of one split each: a feature above 0.5 gets the first numbers, else the second."""
    return Forest(
        np.array([feature, 0, 0, feature, 0, 0], np.int16),
        np.array([0.5, 0, 0, 0.5, 0, 0], np.float32),
        np.array([1, 1, 2, 4, 4, 5], np.int32),
        np.array([2, 1, 2, 5, 4, 5], np.int32),
        np.array(
            [sum((low[0], high[0])) / 2, low[0], high[0], sum((low[1], high[1])) / 2, low[1], high[1]],
            np.float32,
        ),
        np.array([0, 3], np.int32),
        1,
    )


def model(score: float = 1.0) -> KernelModel:
    """Trees that say 20 of a kernel with feature 0, and 60 and 40 of one with feature 1."""
    forests = {
        "code": stump((20, 20), (60, 40)), "summary": stump((20, 20), (60, 40)),
        "recalled": stump((20, 20), (60, 40)), "inputs": stump((0, 0), (0, 0)),
    }  # fmt: skip
    familiarity = Familiarity(
        Standard(np.zeros(1), np.ones(1)), np.array([[0.0], [1.0]], np.float32), np.array([0.2, 0.4])
    )
    calibration = ConformalScores(np.full(20, score), np.ones(20))
    memory = Memory.of(COLUMNS[:1], np.array([[0.0], [1.0]]), np.full((2, 2), 4.0), np.array([20.0, 50.0]))
    pool = Pooled(COLUMNS, forests, memory)
    return KernelModel("pair", pool, calibration, familiarity, {"seed": 1})


def test_the_nearest_known_kernels_are_named_once_each_nearest_first() -> None:
    known = Familiarity(
        Standard(np.zeros(2), np.ones(2)), np.array([[0, 0], [0, 3], [4, 0], [0, 1]], np.float32),
        np.array([0.2, 0.4]), ("add", "sum", "dot", "sum"),
    )  # fmt: skip
    found = known.nearest(np.zeros(2))
    assert [near.kernel for near in found] == ["add", "sum", "dot"]
    assert [near.distance for near in found] == pytest.approx([0, 0.5**0.5, 8**0.5])
    assert known.nearest(np.array([4.0, 0.0]), count=1)[0].as_json() == {"kernel": "dot", "distance": 0.0}
    assert replace(known, names=()).nearest(np.zeros(2)) == ()
    with pytest.raises(InvalidSetting, match="4 known kernels cannot have 1 names"):
        replace(known, names=("add",))


def test_the_interval_widens_where_the_trees_disagree() -> None:
    agreed = model().estimate(np.array([0.0]), LAUNCH, confidence=0.9)
    assert (agreed.share, agreed.low, agreed.high) == (20, 20 - FLOOR, 20 + FLOOR)
    split = model().estimate(np.array([1.0]), LAUNCH, confidence=0.9)
    assert (split.share, split.low, split.high) == (50, 40 - FLOOR, 60 + FLOOR)


def test_many_launches_get_the_answers_that_each_gets_alone() -> None:
    code = np.array([[0.0], [1.0], [0.0]])
    together = model().estimates(code, np.tile(LAUNCH, (3, 1)), confidence=0.9)
    alone = [model().estimate(row, LAUNCH, confidence=0.9) for row in code]
    assert [vars(one) for one in together] == [vars(one) for one in alone]


def test_the_class_is_the_one_that_most_trees_are_nearest_to() -> None:
    found = model().estimate(np.array([0.0]), LAUNCH, confidence=0.9)
    assert (found.share, found.share_class) == (20, 25)


def test_intervals_end_at_nothing_and_at_everything() -> None:
    found = model(score=100.0).estimate(np.array([0.0]), LAUNCH, confidence=0.9)
    assert (found.low, found.high) == (0, 100)


def test_familiarity_is_the_part_of_known_kernels_that_are_farther_from_the_rest() -> None:
    familiarity = model().familiarity
    assert [familiarity.of(np.array([x])) for x in (0.0, 1.3, 9.0)] == [1.0, 0.5, 0.0]
    assert familiarity.of_each(np.array([[0.0], [1.3], [9.0]])).tolist() == [1.0, 0.5, 0.0]


def test_where_every_row_is_an_application_intervals_are_those_of_crepes() -> None:
    crepes = pytest.importorskip("crepes")
    random = np.random.default_rng(4)
    residuals, spread = random.normal(0, 9, 57), random.uniform(0, 20, 57)
    scores = ConformalScores(np.sort(np.abs(residuals) / (spread + FLOOR)), np.ones(57))
    theirs = crepes.ConformalRegressor()
    theirs.fit(residuals, sigmas=spread + FLOOR)
    for confidence in (0.5, 0.8, 0.9, 0.95):
        (low, high), *_ = theirs.predict_int(np.array([50.0]), sigmas=np.array([7.0]), confidence=confidence)
        assert high - 50 == pytest.approx(7.0 * scores.quantile(confidence))
        assert 50 - low == pytest.approx(7.0 * scores.quantile(confidence))


def test_strange_kernels_get_intervals_up_to_twice_as_wide() -> None:
    assert widening(np.array([0.0, 0.05, 0.1, 1.0])).tolist() == [2.0, 1.5, 1.0, 1.0]
    strange = model().estimate(np.array([-9.0]), LAUNCH, confidence=0.9)
    assert (strange.familiarity, strange.low, strange.high) == (0.0, 20 - 2 * FLOOR, 20 + 2 * FLOOR)


def test_a_quantile_counts_applications_and_the_new_one_among_them() -> None:
    scores = ConformalScores(np.arange(1.0, 10.0), np.ones(9))
    assert scores.quantile(0.5) == 5.0
    assert scores.quantile(0.9) == 9.0
    assert scores.quantile(0.95) == math.inf
    # One application of eight rows weighs as much as another of one.
    assert ConformalScores(np.arange(1.0, 10.0), np.array([1 / 8] * 8 + [1.0])).quantile(0.5) == 9.0
    with pytest.raises(InvalidSetting, match="confidence must lie between 0 and 1"):
        scores.quantile(1.0)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    model().save(tmp_path)
    loaded = KernelModel.load(tmp_path)
    row = np.array([1.0]), LAUNCH
    assert vars(loaded.estimate(*row, confidence=0.8)) == vars(model().estimate(*row, confidence=0.8))
    assert (loaded.features, loaded.about) == (COLUMNS, {"seed": 1})


def test_changed_weights_and_missing_ones_are_noticed(tmp_path: Path) -> None:
    path = model().save(tmp_path) / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MalformedInput, match="does not have the checksum"):
        KernelModel.load(tmp_path)
    with pytest.raises(UnreadableFile, match="Cannot read"):
        KernelModel.load(tmp_path / "other")


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="knows 6 features, not 7"):
        model().estimate(np.zeros(2), LAUNCH, confidence=0.9)
