"""Adapting a model to a machine: a factor, a tilt, and both kept for later predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.advise.calibrate import fitted
from apportion.advise.launch_times import Correction, correction_of, keep_correction
from apportion.errors import InvalidSetting
from apportion.learn.times.timing_model import Times
from apportion.runtime.base import DeviceInfo

DEVICE = DeviceInfo("cpu", "A Processor", "cpu", "v", "p", "1.0", "1", 4, 1, 1, 1)


def test_a_machine_that_is_three_times_slower_is_found_out() -> None:
    said = np.geomspace(1e-4, 1e-1, 10)
    correction = fitted(said, 3 * said)
    assert correction.applied(Times(0.001, 0.009, 0.5)).seconds == pytest.approx(0.03, rel=1e-6)
    assert correction.kernels == 10


def test_short_launches_may_be_off_by_another_factor_than_long_ones() -> None:
    said = np.geomspace(1e-4, 1e-1, 20)
    correction = fitted(said, 10 * said**1.3)
    assert 1.2 < correction.slope < 1.3
    raw = float(np.abs(np.log(10 * said**0.3)).mean())
    left = [
        abs(np.log(correction.applied(Times(0.0, each, 0.0)).seconds / (10 * each**1.3))) for each in said
    ]
    assert np.mean(left) < raw / 3


def test_one_kernel_that_went_wrong_does_not_decide() -> None:
    said = np.geomspace(1e-3, 1e-2, 9)
    measured = 2 * said
    measured[4] *= 100
    assert fitted(said, measured).applied(Times(0.0, 3e-3, 0.0)).seconds == pytest.approx(6e-3, rel=0.25)


def test_too_few_kernels_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="at least 3 kernels, not 2"):
        fitted(np.array([1.0, 2.0]), np.array([1.0, 2.0]))


def test_what_was_found_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path))
    assert correction_of(DEVICE, "xeon-h200") is None
    keep_correction(DEVICE, "xeon-h200", Correction(0.5, 1.1, 0.2, 12))
    assert correction_of(DEVICE, "xeon-h200") == Correction(0.5, 1.1, 0.2, 12)
    assert correction_of(DEVICE, "other") is None
