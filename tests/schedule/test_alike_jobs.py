"""Jobs that are alike are one row of a linear program, and the answer is the same."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.schedule.programs import largest_least, largest_sum


def drawn(seed):
    drawing = np.random.default_rng(seed)
    kind = drawing.integers(0, 5, 40)
    rate = (drawing.uniform(0.2, 1.0, (5, 3)) * (drawing.random((5, 3)) > 0.2))[kind]
    rate[:, 0] = np.maximum(rate[:, 0], 0.1)
    return kind, rate, drawing.integers(1, 4, 5)[kind], np.array([4, 7, 5])


def told_apart(rate):
    """The same jobs, no two of which are alike."""
    return rate * (1 + 1e-9 * np.arange(len(rate)))[:, None]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("program", [largest_least, largest_sum])
def test_alike_jobs_share_evenly_and_reach_the_optimum_of_jobs_that_are_told_apart(seed, program):
    kind, rate, width, slots = drawn(seed)
    found, apart = program(rate, width, slots), program(told_apart(rate), width, slots)
    assert found.optimum == pytest.approx(apart.optimum, rel=1e-6)
    for one in range(5):
        assert np.ptp(found.share[kind == one], axis=0).max(initial=0) == 0
    assert (found.share.sum(axis=1) <= 1 + 1e-9).all()
    assert ((width[:, None] * found.share).sum(axis=0) <= slots * (1 + 1e-9)).all()
    served = (rate * found.share).sum(axis=1)
    reached = served.min() if program is largest_least else served.sum()
    assert reached == pytest.approx(found.optimum, rel=1e-6)


def test_the_second_goal_holds_for_alike_jobs_too():
    kind, rate, width, slots = drawn(3)
    then = np.ones(rate.shape)
    found, apart = (largest_least(one, width, slots, then=then) for one in (rate, told_apart(rate)))
    assert found.share.sum() == pytest.approx(apart.share.sum(), rel=1e-5)
    assert len(np.unique(found.share, axis=0)) <= len(np.unique(kind))
