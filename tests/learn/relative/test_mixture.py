"""A new system from few runs: a twin is found, a stranger is not trusted, and sigmas say which is which."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting
from apportion.learn.relative.mixture import Known, estimate, nearest

RANDOM = np.random.default_rng(5)
SYSTEMS = RANDOM.normal(0, 3, (60, 1)) + RANDOM.normal(0, 1, (60, 4))
FEATURES = RANDOM.standard_normal((60, 3))


def known(rows: slice) -> Known:
    return Known(SYSTEMS[rows], FEATURES[rows])


def test_a_twin_of_a_known_system_is_recognised() -> None:
    truth = SYSTEMS[:, 2] - 1.0  # twice as fast as the third, always
    found = estimate(
        known(slice(0, 10)), truth[:10], known(slice(10, None)), background=known(slice(0, None))
    )
    assert found.likeness.argmax() == 2
    assert found.likeness.sum() == pytest.approx(1)
    assert np.abs(found.mean - truth[10:]).mean() < 0.2
    assert nearest(SYSTEMS[:10], truth[:10], SYSTEMS[10:]) == pytest.approx(truth[10:])


def test_more_runs_make_it_surer_and_better() -> None:
    truth = (SYSTEMS[:, 0] + SYSTEMS[:, 3]) / 2 + 0.3 * FEATURES[:, 0]
    errors, sigmas = [], []
    for count in (4, 30):
        found = estimate(known(slice(0, count)), truth[:count], known(slice(30, None)),
                         background=known(slice(0, None)))  # fmt: skip
        errors.append(float(((found.mean - truth[30:]) ** 2).mean()))
        sigmas.append(float(found.sigma.mean()))
    assert errors[1] < errors[0]
    assert sigmas[1] < sigmas[0]


def test_a_stranger_has_a_wide_sigma_that_holds() -> None:
    strange = SYSTEMS.mean(axis=1) + RANDOM.normal(0, 1.5, 60)
    twin = SYSTEMS[:, 1]
    found, alike = (
        estimate(known(slice(0, 20)), truth[:20], known(slice(20, None)), background=known(slice(0, None)))
        for truth in (strange, twin)
    )
    assert found.sigma.mean() > 1.5 * alike.sigma.mean()
    held = np.abs(found.mean - strange[20:]) <= found.sigma
    assert 0.4 < held.mean() <= 1


def test_the_ridge_uses_what_the_nearest_system_does_not_say() -> None:
    truth = SYSTEMS[:, 0] + 0.5 * (SYSTEMS[:, 1] - SYSTEMS[:, 2])
    plain = nearest(SYSTEMS[:40], truth[:40], SYSTEMS[40:])
    moved = nearest(SYSTEMS[:40], truth[:40], SYSTEMS[40:], strength=1.0)
    assert np.abs(moved - truth[40:]).mean() < 0.3 * np.abs(plain - truth[40:]).mean()


def test_two_runs_and_two_systems_are_the_least() -> None:
    with pytest.raises(InvalidSetting, match="two measured runs at least, not 1"):
        estimate(known(slice(0, 1)), np.zeros(1), known(slice(1, 3)))
    with pytest.raises(InvalidSetting, match="times on two systems at least"):
        Known(SYSTEMS[:, :1], FEATURES)
