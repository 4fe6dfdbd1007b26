"""Measure a few, rank the rest."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting
from apportion.learn.ranking.measures import agreement
from apportion.learn.ranking.ridge import OptionRidge, TuningPlan, tune

OPTIONS = np.array([3, 4, 2, 5, 3, 4])
COST = [np.random.default_rng(node).uniform(0, 100, count) for node, count in enumerate(OPTIONS)]


def program(configurations: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Different configurations of six nodes, and runtimes that are sums of what their options cost."""
    random = np.random.default_rng(seed)
    codes = np.unique(random.integers(0, OPTIONS, (4 * configurations, 6)), axis=0).astype(np.uint8)
    codes = random.permutation(codes)[:configurations]
    return codes, 1000 + sum(cost[codes[:, node]] for node, cost in enumerate(COST))


def test_costs_that_add_up_are_found_from_a_few():
    codes, runtime = program(700)
    model = OptionRidge.fit(codes[:80], OPTIONS, runtime[:80])
    assert np.allclose(model.predict(codes[80:]), runtime[80:], rtol=1e-4)


def test_noise_makes_the_penalty_strong():
    codes, runtime = program(700)
    noise = np.random.default_rng(1).normal(0, 500, 700)
    quiet = OptionRidge.fit(codes[:60], OPTIONS, runtime[:60])
    loud = OptionRidge.fit(codes[:60], OPTIONS, 3000 + noise[:60])
    assert loud.strength > 100 * quiet.strength


def test_an_option_that_was_never_measured_costs_the_mean():
    codes = np.array([[0], [1], [0], [1]], np.uint8)
    model = OptionRidge.fit(codes, np.array([3]), np.array([10.0, 20, 10, 20]))
    assert model.predict(np.array([[2]]))[0] == pytest.approx(15, rel=1e-3)


def test_the_least_certain_configuration_is_the_one_with_options_not_seen():
    known = np.array([[0, 0], [0, 1], [1, 0]], np.uint8)
    model = OptionRidge.fit(known, np.array([3, 3]), np.array([1.0, 2, 3]))
    pool = np.array([[0, 0], [1, 1], [2, 2], [2, 2], [0, 2]], np.uint8)
    first, second = model.most_uncertain(pool, 2).tolist()
    assert first == 2
    assert second != 3  # it is the same as the first, which would have been measured by then


def test_tuning_measures_what_it_may_and_finds_the_best():
    codes, runtime = program(700)
    measured: list[int] = []

    def measure(chosen: np.ndarray) -> np.ndarray:
        measured.extend(chosen.tolist())
        return runtime[chosen]

    tuned = tune(codes, OPTIONS, measure, TuningPlan(60), seed=3)
    assert len(measured) == len(set(measured)) == 60
    assert tuned.measured.tolist() == measured
    assert tuned.best == int(np.argmin(runtime))
    assert agreement(runtime, tuned.scores).tau_b > 0.99
    again = tune(codes, OPTIONS, lambda i: runtime[i], TuningPlan(60), seed=3)
    assert np.array_equal(again.scores, tuned.scores)


def test_a_budget_above_the_number_of_configurations_measures_all():
    codes, runtime = program(20)
    assert sorted(tune(codes, OPTIONS, lambda i: runtime[i], TuningPlan(50)).measured) == list(range(20))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"budget": 3}, "budget must be at least 4 measurements, not 3"),
        ({"budget": 10, "random_share": 0.8, "check_share": 0.3}, "nor above 1 together"),
        ({"budget": 10, "rounds": 0}, "rounds must be at least 1, not 0"),
    ],
)
def test_an_impossible_plan_is_refused(settings, problem):
    with pytest.raises(InvalidSetting, match=problem):
        TuningPlan(**settings)


def test_one_configuration_and_zero_runtimes_cannot_be_fitted():
    with pytest.raises(InvalidSetting, match="two or more configurations, not 1"):
        OptionRidge.fit(np.zeros((1, 2), np.uint8), np.array([1, 1]), np.array([5]))
    with pytest.raises(InvalidSetting, match="zero or less was not measured"):
        OptionRidge.fit(np.zeros((2, 2), np.uint8), np.array([1, 1]), np.array([5, 0]))
