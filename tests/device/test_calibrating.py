"""Calibrating: what one more operation takes, whatever a launch takes anyway and whoever is in the way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

pytest.importorskip("pyopencl")

from apportion.device import calibrating
from apportion.device.platforms import DriverOptions
from apportion.device.worker import Worker


@pytest.mark.parametrize("each", [1e-6, 1e-3])
def test_what_any_launch_takes_is_not_in_what_one_more_takes(
    each: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    called = count()

    def seconds(action: Callable[[], object]) -> float:
        action()
        hiccup = 0.05 if next(called) % 3 == 0 else 0.0
        return 2e-4 + each * done[-1] + hiccup

    monkeypatch.setattr(calibrating, "_seconds", seconds)
    assert calibrating._seconds_each(done.append) == pytest.approx(each)


def test_functions_are_worth_more_than_integers_on_a_real_device() -> None:
    with Worker(DriverOptions(pocl_instances=1, threads=1, vendors=False)) as worker:
        worth = worker.calibrate("cpu").worth
    assert set(worth) >= {"divisions", "roots", "powers", "angles", "global atomics", "barriers", "groups"}
    assert min(worth["angles"], worth["powers"]) > 5 * worth["integer operations"]
    assert worth["groups"] > worth["barriers"]
