"""The policy `bayes`: what it weighs is what integrals say, and it explores where that pays for itself."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.expected_times import BELIEVING, Belief, BeliefSettings
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import REMEMBERING, Choice, Observations, PastLaunch
from apportion.coexecution.policies.base import Situation
from apportion.coexecution.policies.bayes import (
    HORIZON,
    BayesPolicy,
    HorizonSettings,
    PossibleLaunch,
    WeighedLaunches,
)
from apportion.errors import InvalidSetting
from apportion.runtime.split import Split
from apportion.testing.policy_checks import TRUTHS, launched, play, situation_of

NO_OBSTACLE, ONE_DEVICE = "", "a test"
SURE = BeliefSettings(noise=0.01, late=0.0, sure=1e9)
"Launches hardly vary, and the spread of forecasts is what it is said to be."


def _situation(obstacle: str, spread: float, **seconds: float) -> Situation:
    models = {name: CostModel(0.1 * each, 0.9 * each) for name, each in seconds.items()}
    truth = situation_of(models)
    forecast = Forecast(models, spread, "a test", 1e-4)
    return replace(truth, ask=lambda: forecast, obstacle=obstacle)


def _seen(**seconds: float) -> Observations:
    """Each device was launched alone, three times."""
    seen = Observations()
    for name, each in seconds.items():
        for _ in range(3):
            seen.add(PastLaunch({name: 1.0}, each, {name: each}))
    return seen


def _of(weighed: WeighedLaunches, device: str) -> PossibleLaunch:
    return next(each for each in weighed.possible() if each.split.shares[device] == 1)


@pytest.mark.parametrize("predicted", [0.8e-2, 1.3e-2, 2e-2])
def test_what_comes_after_a_trial_is_the_integral_over_what_it_may_show(predicted: float) -> None:
    situation = _situation(ONE_DEVICE, 2.0, cpu=1e-2, gpu=predicted)
    weighed = WeighedLaunches(situation, _seen(cpu=1e-2), SURE)
    belief = weighed.belief
    expected = belief.seconds("gpu") * math.exp(belief.deviation("gpu") ** 2 / 2)
    later = 1e-2 - belief.gain("gpu", 1e-2)
    assert expected - belief.gain("gpu", 1e-2) < expected
    assert _of(weighed, "gpu").later == pytest.approx(later, rel=0.05)
    assert _of(weighed, "cpu").later == pytest.approx(min(expected, 1e-2), rel=0.02)


def test_a_cut_takes_what_the_slower_of_its_devices_takes_in_the_mean() -> None:
    situation = _situation(NO_OBSTACLE, 2.5, cpu=1e-2, gpu=1.2e-2)
    weighed = WeighedLaunches(situation, Observations(), SURE)
    split = Split({"cpu": 0.4, "gpu": 0.6})
    random = np.random.default_rng(0)
    drawn = random.multivariate_normal(weighed.belief.mean, weighed.belief.covariance, 200_000)
    whole, part = np.exp(drawn[:, :2]), 1 / (1 + np.exp(-drawn[:, 2:]))
    taken = whole * (part + (1 - part) * np.array([0.4, 0.6]))
    assert weighed.expected(split) == pytest.approx(taken.max(axis=1).mean() + 1e-4, rel=0.05)


def test_another_device_is_tried_where_what_it_may_save_is_more_than_it_costs() -> None:
    seen = _seen(cpu=1e-2)
    again = 1 / REMEMBERING.after_another
    tried = []
    for coming, predicted in product((1, 3, 10, 30, 100), (1.1e-2, 1.5e-2, 2.5e-2)):
        situation = _situation(ONE_DEVICE, 1.8, cpu=1e-2, gpu=predicted)
        belief = WeighedLaunches(situation, seen, SURE).belief
        expected = belief.seconds("gpu") * math.exp(belief.deviation("gpu") ** 2 / 2)
        costs = again * expected + (again - 1) * 1e-2 - 1e-2
        saves = max(coming, seen.noted) * belief.gain("gpu", 1e-2)
        if not 0.8 < saves / costs < 1.25:  # else three points are too few for an integral
            choice = BayesPolicy(SURE, HorizonSettings(coming)).choose(situation, seen)
            assert (choice.split.shares["gpu"] == 1) == (saves > costs), (coming, predicted)
            tried.append(saves > costs)
    assert 3 <= sum(tried) <= len(tried) - 3


def test_a_device_that_is_surely_slower_is_never_tried() -> None:
    situation = _situation(ONE_DEVICE, 1.05, cpu=1e-2, gpu=2e-2)
    seen = _seen(cpu=1e-2)
    seen.noted = 1 << 20
    assert BayesPolicy().choose(situation, seen).split.shares == {"cpu": 1.0, "gpu": 0.0}


def test_the_first_launch_is_the_one_that_is_expected_to_take_least_as_it_may_be_the_only_one() -> None:
    """The CPU's forecast is vague: it may be faster, but is expected to take longer."""
    models = {"cpu": CostModel(0.0, 1e-2), "gpu": CostModel(0.0, 1e-2)}
    forecast = Forecast(models, 4.0, "a test", 1.0, spreads={"cpu": 4.0, "gpu": 1.1})
    situation = replace(situation_of(models), ask=lambda: forecast)
    first = BayesPolicy().choose(situation, Observations())
    assert first.split.shares == {"cpu": 0.0, "gpu": 1.0}
    after = launched({"cpu": CostModel(0.0, 1e-2), "gpu": CostModel(0.0, 1e-2)}, first.split)
    seen = Observations()
    seen.add(after)
    assert BayesPolicy().choose(situation, seen).split.shares == {"cpu": 1.0, "gpu": 0.0}


def test_a_late_launch_does_not_cost_a_device_its_place_for_good() -> None:
    """The GPU's only launch took twice what it takes; once many launches came, it is tried again."""
    truth = {"cpu": CostModel(0.0, 1.6e-2), "gpu": CostModel(0.0, 1e-2)}
    seen = Observations()
    seen.add(PastLaunch({"gpu": 1.0}, 2e-2, {"gpu": 2e-2}))
    situation = replace(situation_of(truth), obstacle=ONE_DEVICE)
    devices = []
    for _ in range(70):
        choice = BayesPolicy().choose(situation, seen)
        devices.append("gpu" if choice.split.shares["gpu"] else "cpu")
        seen.add(launched(truth, choice.split))
    assert devices[-1] == "gpu"


def test_of_three_devices_the_two_that_are_worth_it_share() -> None:
    *_, (last, seconds) = play(BayesPolicy(), TRUTHS["three"], situation_of(TRUTHS["three"], 2.0), 30)
    alone = min(model.seconds(1.0) for model in TRUTHS["three"].values())
    assert sum(share > 0 for share in last.split.shares.values()) >= 2
    assert seconds < 0.8 * alone


def test_how_much_launches_vary_is_learned_from_those_that_were_repeated() -> None:
    situation = _situation(ONE_DEVICE, 2.0, cpu=1e-2, gpu=1e-2)
    found = []
    for deviation in (0.005, 0.3):
        seen = Observations()
        for factor in np.exp(deviation * np.array([-1, 1, -1, 1, -1, 1, -1, 1])):
            seen.add(PastLaunch({"cpu": 1.0}, 1e-2 * factor, {"cpu": 1e-2 * factor}))
        found.append(WeighedLaunches(situation, seen).settings.noise)
    assert found[0] < 0.8 * BELIEVING.noise < BELIEVING.noise < found[1]


def test_what_sharing_costs_is_learned_from_shared_launches() -> None:
    situation = _situation(NO_OBSTACLE, 2.0, cpu=1e-2, gpu=1e-2)
    seen = Observations()
    for _ in range(3):
        seen.add(PastLaunch({"cpu": 0.5, "gpu": 0.5}, 8e-3, {"cpu": 5e-3, "gpu": 5e-3}))
    assert WeighedLaunches(situation, Observations()).sharing == pytest.approx(1e-4)
    assert WeighedLaunches(situation, seen, SURE).sharing > 1e-3


def test_a_choice_stands_until_launches_doubled_or_one_takes_far_longer() -> None:
    situation = _situation(ONE_DEVICE, 1.1, cpu=1e-2, gpu=5e-2)
    seen = _seen(cpu=1e-2)
    policy = BayesPolicy()
    choice = policy.choose(situation, seen)
    assert seen.noted == 3
    assert policy.stands(seen, choice, 1.1e-2)
    assert not policy.stands(seen, choice, 2e-2)
    seen.noted = 4
    assert not policy.stands(seen, choice, 1e-2)


def test_the_first_launch_with_a_cut_is_thought_about_whatever_it_took() -> None:
    """What it was expected to take says little of what it takes."""
    seen = Observations()
    seen.add(PastLaunch({"cpu": 0.3, "gpu": 0.7}, 7e-3, {"cpu": 6e-3, "gpu": 7e-3}))
    choice = Choice(Split.even(["cpu", "gpu"]), 6e-3, "a test")
    launch = PastLaunch({"cpu": 0.5, "gpu": 0.5}, 6e-3, {"cpu": 6e-3, "gpu": 6e-3})
    for stands in (False, True):
        seen.add(launch)
        seen.noted = 5  # launches have not doubled
        assert BayesPolicy().stands(seen, choice, 6e-3) is stands


def test_what_is_about_the_best_is_no_try_and_what_is_little_off_was_expected() -> None:
    situation = _situation(NO_OBSTACLE, 2.0, cpu=1e-2, gpu=1.4e-2)

    def tries(horizon: HorizonSettings) -> set[str]:
        return {
            each.tries for each in WeighedLaunches(situation, _seen(cpu=1e-2), horizon=horizon).possible()
        }

    assert tries(HORIZON) == {"", "gpu"}
    assert tries(replace(HORIZON, about_best=100.0)) == {""}
    seen = _seen(cpu=1.1e-2)
    seen.noted = 5
    choice = Choice(Split({"cpu": 1.0, "gpu": 0.0}), 1e-2, "a test")
    assert BayesPolicy().stands(seen, choice, 1.1e-2)
    assert not BayesPolicy(replace(BELIEVING, most_noise=0.5)).stands(seen, choice, 1.1e-2)


def test_every_number_changes_what_is_weighed() -> None:
    situation = _situation(NO_OBSTACLE, 2.0, cpu=1e-2, gpu=1.4e-2)
    seen = _seen(cpu=1e-2)
    seen.add(PastLaunch({"cpu": 0.7, "gpu": 0.3}, 9e-3, {"cpu": 8e-3, "gpu": 7e-3}))

    def costs(settings: BeliefSettings, horizon: HorizonSettings) -> list[float]:
        return [each.cost for each in WeighedLaunches(situation, seen, settings, horizon).possible()]

    usual = costs(BELIEVING, HORIZON)
    changed = {"alike": 0.0, "noise": 0.3, "noise_counts": 50.0, "late": 0.0, "sure": 50.0, "part": 0.3}
    changed |= {"least_part": 0.5, "most_part": 0.05, "least_spread": 2.0}
    for name, value in changed.items():
        assert costs(replace(BELIEVING, **{name: value}), HORIZON) != pytest.approx(usual, rel=1e-9), name
    for name, value in {"coming": 50, "sharing": 0.01, "careful": (0.6,), "combined": 1}.items():
        assert costs(BELIEVING, replace(HORIZON, **{name: value})) != pytest.approx(usual, rel=1e-9), name
    with pytest.raises(InvalidSetting):
        HorizonSettings(coming=0)
    with pytest.raises(InvalidSetting):
        HorizonSettings(sharing=-1)
    with pytest.raises(InvalidSetting, match="between 0 and 1"):
        HorizonSettings(careful=(0.5, 1.0))
    with pytest.raises(InvalidSetting, match="at least 1"):
        BeliefSettings(most_surprise=0.5)
    with pytest.raises(InvalidSetting, match="least_part < most_part"):
        BeliefSettings(least_part=0.96)
    with pytest.raises(InvalidSetting, match="least_spread and most_noise"):
        BeliefSettings(most_noise=0.0)
    with pytest.raises(InvalidSetting, match="about_best must be at least 1"):
        HorizonSettings(about_best=0.9)
    assert isinstance(WeighedLaunches(situation, seen).belief, Belief)
