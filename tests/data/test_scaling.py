"""Scaling is fitted on one set of rows and applied to another."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting


def test_training_rows_get_mean_0_and_deviation_1_and_constants_become_0() -> None:
    scaling = Standard.fit(np.array([[1.0, 7.0], [3.0, 7.0]]))
    assert scaling.apply(np.array([[1.0, 7.0], [3.0, 7.0]])).tolist() == [[-1, 0], [1, 0]]


def test_other_rows_do_not_move_the_scaling() -> None:
    scaling = Standard.fit(np.array([[0.0], [2.0]]))
    assert scaling.apply(np.array([[101.0]])).tolist() == [[100.0]]


def test_there_must_be_rows() -> None:
    with pytest.raises(InvalidSetting, match=r"shape \(0, 2\)"):
        Standard.fit(np.zeros((0, 2)))
