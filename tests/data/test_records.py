"""What one measured row means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apportion.data.records import Example, nearest_class
from apportion.errors import InvalidSetting

ROW = Example("a-default", "suite", "suite-a", "k", "kernel", "ir", 4096, 64, cpu_time=3.0, gpu_time=1.0)


def test_the_device_is_the_faster_one_and_the_cpu_when_equal() -> None:
    assert ROW.device == "gpu"
    assert replace(ROW, gpu_time=3.0).device == "cpu"


def test_the_share_is_that_with_which_both_devices_end_together() -> None:
    assert ROW.cpu_share == 25.0  # 0.25 x 3 = 0.75 x 1
    assert replace(ROW, gpu_time=3.0).cpu_share == 50.0
    assert replace(ROW, cpu_time=2.0).cpu_share == 33.0  # whole percents, as published


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 0), (12.4, 0), (12.5, 0), (12.6, 25), (49, 50), (87.6, 100)]
)
def test_a_share_belongs_to_the_nearest_class(share: float, expected: int) -> None:
    assert nearest_class(share) == expected


def test_times_must_be_positive() -> None:
    with pytest.raises(InvalidSetting, match=r"times must be positive, not 0\.0 and 1\.0"):
        replace(ROW, cpu_time=0.0)


def test_there_is_no_third_device() -> None:
    assert (ROW.time("cpu"), ROW.time("gpu")) == (3.0, 1.0)
    with pytest.raises(InvalidSetting, match="'cpu' or 'gpu', not 'tpu'"):
        ROW.time("tpu")
