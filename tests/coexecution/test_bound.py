"""A steady loop: its launches are chosen, checked and noted no more, until one takes longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from apportion.coexecution.bound import STEADY, BoundKernel, SteadySettings
from apportion.coexecution.normal_points import normal_points
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting
from apportion.suite import problem_of

RECORDING = Path(__file__).parents[2] / "docs" / "results" / "co-execution"


@pytest.fixture
def bound() -> Iterator[BoundKernel]:
    problem = problem_of("bezier")
    instance = problem.instance(problem.usual)
    (stage,) = instance.stages
    with Together(problem.source(), "bezier", backend=f"replay:{RECORDING}") as kernel:
        yield kernel.bind(
            *instance.values(stage, instance.arrays),
            global_size=stage.global_size,
            local_size=stage.local_size,
        )


def _noted(bound: BoundKernel, settings: SteadySettings, launches: int) -> list[int]:
    """How many launches were noted after each."""
    bound.steady = settings
    found = []
    for _ in range(launches):
        bound.run("learned+feedback")
        found.append(bound.case.seen.noted)
    return found


def test_each_launch_is_noted_until_the_loop_is_steady_and_then_one_in_so_many(bound: BoundKernel) -> None:
    noted = _noted(bound, SteadySettings(after=12, noted_one_in=4), 30)
    assert noted[:12] == list(range(1, 13))
    assert np.diff(np.flatnonzero(np.diff(noted)))[-3:].tolist() == [4, 4, 4]


def test_a_launch_that_takes_longer_than_is_allowed_is_noted(bound: BoundKernel) -> None:
    noted = _noted(bound, SteadySettings(after=6, noted_one_in=100), 12)
    assert noted[-1] < 12
    hasty = SteadySettings(after=6, noted_one_in=100, late_factor=1.0, late_seconds=0.0)
    bound.run("learned+feedback")
    steady = bound._steady
    assert steady is not None
    assert steady.choice.seconds is not None
    object.__setattr__(steady.choice, "seconds", steady.choice.seconds / 2)  # it was expected to be faster
    before = bound.case.seen.noted
    bound.steady = hasty
    bound.run("learned+feedback")
    assert bound.case.seen.noted == before + 1


@pytest.mark.parametrize(
    "wrong", [{"after": 0}, {"noted_one_in": 0}, {"late_factor": 0.9}, {"late_seconds": -1.0}]
)
def test_the_numbers_check_themselves(wrong: dict[str, float]) -> None:
    assert SteadySettings() == STEADY
    with pytest.raises(InvalidSetting, match="must be at least 1"):
        SteadySettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [3, 5])
def test_the_points_of_a_normal_distribution_have_its_moments(count: int) -> None:
    points, weights = normal_points(count)
    for power, moment in ((0, 1.0), (1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert weights @ points**power == pytest.approx(moment, abs=1e-12)
