"""Policies rehearsed on launches whose times are known."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.coexecution.policies.bayes import BayesPolicy
from apportion.coexecution.policies.given import DevicePolicy
from reproduction.policies.held_out import HeldOutForecasts
from reproduction.policies.rehearsal import World, play, rehearsals

QUIET = World(noise=0.0, late=0.0, unshareable=0.0, sharing=0.0)


def _found(cpu: float, gpu: float, *, said: tuple[float, float]) -> HeldOutForecasts:
    def times(*seconds: float) -> np.ndarray:
        return np.array([[[0.1 * each, 0.9 * each] for each in seconds]])

    return HeldOutForecasts(
        ("cpu", "gpu"), ("a suite",), ("a kernel",), times(cpu, gpu), times(*said), times(*said)
    )


def test_the_best_device_loses_nothing_where_sharing_wins_nothing() -> None:
    (one,) = rehearsals(_found(1.0, 1e-3, said=(1.0, 1e-3)), (0.5, 0.3), QUIET)
    assert one.best == one.best_device == 1e-3
    assert play(DevicePolicy("gpu"), one, 5, 0, QUIET).tolist() == [1.0] * 5
    assert play(DevicePolicy("cpu"), one, 5, 0, QUIET).tolist() == [1000.0] * 5


def test_where_sharing_wins_one_device_loses_that() -> None:
    (one,) = rehearsals(_found(2e-2, 2e-2, said=(2e-2, 2e-2)), (0.5, 0.3), QUIET)
    lost = play(DevicePolicy("gpu"), one, 1, 0, QUIET)[0]
    assert lost == pytest.approx(2e-2 / one.best)
    assert lost > 1.6
    assert play(BayesPolicy(), one, 30, 0, QUIET)[-1] < 1.03


def test_a_launch_after_another_device_costs_more() -> None:
    (one,) = rehearsals(_found(1e-2, 2e-2, said=(2e-2, 1e-2)), (0.9, 0.9), QUIET)
    lost = play(BayesPolicy(), one, 20, 0, QUIET)
    assert lost[-1] < 1.03
    assert max(lost) > 1.15


def test_work_that_cannot_be_shared_stays_on_one_device() -> None:
    (one,) = rehearsals(_found(2e-2, 2e-2, said=(2e-2, 2e-2)), None, World(unshareable=1.0))
    assert one.best == one.best_device
    assert one.situation.obstacle
