"""Where systems are alike, each job's part of time is spread over them at the centre of all optima."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from apportion.schedule.equal_systems import central_shares, equal_systems

WIDTH, SLOTS = np.array([1, 4, 2, 1]), np.array([2, 6])


def logarithms(share, full):
    left = SLOTS - WIDTH @ share
    return np.log(share).sum() + (0 if full else np.log(left).sum())


@pytest.mark.parametrize(("part", "full"), [([1.0, 0.9, 0.9, 0.5], False), ([1.0, 1.0, 1.0, 1.0], True)])
def test_no_spread_that_keeps_every_part_has_a_larger_sum_of_logarithms(part, full):
    part = np.array(part)
    share = central_shares(part, WIDTH, SLOTS)
    assert share.sum(axis=1) == pytest.approx(part, abs=1e-12)
    assert ((WIDTH @ share) <= SLOTS + 1e-9).all()

    def spread(first):  # the shares of the first system say those of the second
        return np.stack([first, part - first], axis=1)

    def cost(first):
        inside = spread(first)
        room = SLOTS - WIDTH @ inside
        if (inside <= 0).any() or (not full and (room <= 0).any()):
            return 1e9
        return -logarithms(inside, full)

    rows = [{"type": "eq", "fun": lambda first: WIDTH @ first - SLOTS[0]}] if full else []
    found = minimize(cost, share[:, 0], constraints=rows, method="SLSQP", options={"ftol": 1e-14})
    assert logarithms(share, full) >= -found.fun - 1e-9
    for seed in range(20):
        turned = np.random.default_rng(seed).normal(0, 1e-3, 4)
        if full:
            turned -= WIDTH * (WIDTH @ turned) / (WIDTH @ WIDTH)
        assert cost(share[:, 0] + turned) > -logarithms(share, full)


def test_jobs_of_one_kind_have_the_same_shares_and_systems_of_one_size_too():
    share = central_shares(np.full(5, 0.6), np.array([1, 1, 2, 2, 2]), np.array([2, 2, 2]))
    assert (share[0] == share[1]).all()
    assert (share[2] == share[4]).all()
    assert share == pytest.approx(np.full((5, 3), 0.2), abs=1e-9)


def test_a_job_without_a_part_has_no_share():
    share = central_shares(np.array([0.0, 1.0]), np.array([1, 1]), np.array([1, 1]))
    assert (share[0] == 0).all()
    assert share[1].sum() == pytest.approx(1)


def test_the_largest_level_that_fits_is_found_and_uses_all_slots():
    share = equal_systems(lambda level: np.minimum(1, level / WIDTH), WIDTH, SLOTS // 2, falling=False)
    assert WIDTH @ share == pytest.approx(SLOTS // 2, rel=1e-6)
    assert share[0].sum() == pytest.approx(1)  # a job of one slot has all its time, the others share the rest
