"""The shipped form of a model: arrays, a checksum, conformal intervals, familiarity."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.model.forest import Forest
from apportion.model.kernelmodel import FLOOR, Calibration, Familiarity, KernelModel


def model(score: float = 1.0) -> KernelModel:
    """Two trees of one split each: feature 0 above 0.5 says 60 and 40, else 20 and 20."""
    forest = Forest(
        np.zeros(6, np.int16),
        np.array([0.5, 0, 0, 0.5, 0, 0]),
        np.array([1, 1, 2, 4, 4, 5], np.int32),
        np.array([2, 1, 2, 5, 4, 5], np.int32),
        np.array([0, 20, 60, 0, 20, 40], np.float32),
        np.array([0, 3], np.int32),
        1,
    )
    familiarity = Familiarity(
        Standard(np.zeros(1), np.ones(1)), np.array([[0.0], [1.0]], np.float32), np.array([0.2, 0.4])
    )
    calibration = Calibration(np.full(20, score), np.ones(20))
    return KernelModel("pair", ("code", "input"), forest, calibration, familiarity, {"seed": 1})


def test_the_interval_widens_where_the_trees_disagree() -> None:
    agreed = model().estimate(np.array([0.0]), np.array([9.0]), confidence=0.9)
    assert (agreed.share, agreed.low, agreed.high) == (20, 20 - FLOOR, 20 + FLOOR)
    split = model().estimate(np.array([1.0]), np.array([9.0]), confidence=0.9)
    assert (split.share, split.low, split.high) == (50, 40 - FLOOR, 60 + FLOOR)


def test_intervals_end_at_nothing_and_at_everything() -> None:
    found = model(score=100.0).estimate(np.array([0.0]), np.array([9.0]), confidence=0.9)
    assert (found.low, found.high) == (0, 100)


def test_familiarity_is_the_part_of_known_kernels_that_are_farther_from_the_rest() -> None:
    familiarity = model().familiarity
    assert [familiarity.of(np.array([x])) for x in (0.0, 1.3, 9.0)] == [1.0, 0.5, 0.0]


def test_a_quantile_counts_applications_and_the_new_one_among_them() -> None:
    scores = Calibration(np.arange(1.0, 10.0), np.ones(9))
    assert scores.quantile(0.5) == 5.0
    assert scores.quantile(0.9) == 9.0
    assert scores.quantile(0.95) == math.inf
    # One application of eight rows weighs as much as another of one.
    assert Calibration(np.arange(1.0, 10.0), np.array([1 / 8] * 8 + [1.0])).quantile(0.5) == 9.0
    with pytest.raises(InvalidSetting, match="confidence must lie between 0 and 1"):
        scores.quantile(1.0)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    model().save(tmp_path)
    loaded = KernelModel.load(tmp_path, "pair")
    row = np.array([1.0]), np.array([9.0])
    assert vars(loaded.estimate(*row, confidence=0.8)) == vars(model().estimate(*row, confidence=0.8))
    assert (loaded.features, loaded.about) == (("code", "input"), {"seed": 1})


def test_changed_weights_and_missing_ones_are_noticed(tmp_path: Path) -> None:
    path = model().save(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MalformedInput, match="do not have the checksum"):
        KernelModel.load(tmp_path, "pair")
    with pytest.raises(UnreadableFile, match="Cannot read the model other"):
        KernelModel.load(tmp_path, "other")


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="pair knows 2 features, not 3"):
        model().estimate(np.zeros(2), np.zeros(1), confidence=0.9)
