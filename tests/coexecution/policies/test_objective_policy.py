"""Launches chosen for energy, energy × time or under a limit of power, on devices whose truth is known."""

from __future__ import annotations

import pytest

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.objective import Objective, PowerModel, objective_of
from apportion.coexecution.observations import Choice, Observations, PastLaunch
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.objective_policy import ObjectivePolicy, ObjectiveSettings
from apportion.errors import InvalidSetting, UnknownName
from apportion.runtime.split import Split
from apportion.testing.policy_checks import PolicyChecks, play, seconds_of, situation_of

EVERYBODY = ("cpu", "cpu2", "gpu")
GIVEN = dict.fromkeys(EVERYBODY, "given")
ALIKE = PowerModel(50.0, dict.fromkeys(EVERYBODY, 0.0), GIVEN)
"A machine that draws the same whoever works: least energy is least time."


class TestTheEnergyOfDevicesThatDrawTheSame(PolicyChecks):
    def policy(self) -> Policy:
        return ObjectivePolicy(Objective("energy"), ALIKE)


class TestTheEnergyTimesTimeOfDevicesThatDrawTheSame(PolicyChecks):
    def policy(self) -> Policy:
        return ObjectivePolicy(Objective("edp"), ALIKE)


TRUTH = {"cpu": CostModel(1e-4, 2e-2), "gpu": CostModel(1e-4, 1e-2)}
HUNGRY_GPU = PowerModel(20.0, {"cpu": 30.0, "gpu": 400.0}, GIVEN)


def _settled(objective: str | float, power: PowerModel, off: float) -> tuple[Split, float, float]:
    """The split after 40 launches, with its seconds and joules."""
    policy = ObjectivePolicy(objective_of(objective), power)
    *_, (choice, seconds) = play(policy, TRUTH, situation_of(TRUTH, off), 40)
    return choice.split, seconds, power.joules(seconds, seconds_of(TRUTH, choice.split))


@pytest.mark.parametrize("off", [0.3, 1.0, 3.0])
def test_least_energy_leaves_a_fast_device_alone_that_draws_much(off: float) -> None:
    split, seconds, joules = _settled("energy", HUNGRY_GPU, off)
    assert split.shares == {"cpu": 1.0, "gpu": 0.0}
    assert joules == pytest.approx(50 * seconds)
    _, shared_seconds, shared_joules = _settled("energy", ALIKE, off)
    assert shared_seconds < 0.5 * seconds, "with equal devices the work is shared"
    assert shared_joules == pytest.approx(50 * shared_seconds)


@pytest.mark.parametrize("off", [0.3, 1.0, 3.0])
def test_energy_times_time_lies_between_least_energy_and_least_time(off: float) -> None:
    _, slow, least = _settled("energy", HUNGRY_GPU, off)
    _, middle, between = _settled("edp", HUNGRY_GPU, off)
    assert middle <= slow
    assert between >= least
    assert middle * between <= slow * least * 1.02


def test_a_limit_of_power_is_kept_where_a_cut_keeps_it() -> None:
    for watts, free in ((100.0, False), (1000.0, True)):
        split, seconds, joules = _settled(watts, HUNGRY_GPU, 1.0)
        assert joules / seconds <= watts
        assert (split.shares["gpu"] > 0.5) == free
    split, seconds, joules = _settled("10W", HUNGRY_GPU, 1.0)  # nothing keeps it: the least power is taken
    assert split.shares["cpu"] == 1.0
    assert joules / seconds == pytest.approx(50.0)


def test_objectives_are_said_in_words() -> None:
    assert objective_of("edp") == Objective("edp")
    assert objective_of("250W") == objective_of(250) == objective_of("250") == Objective("power", 250.0)
    assert str(objective_of("250W")) == "time within 250 W"
    with pytest.raises(UnknownName, match=r"No objective called 'enrgy'. Did you mean 'energy'"):
        objective_of("enrgy")
    for wrong in (0, "-5W"):
        with pytest.raises(InvalidSetting, match="above 0 W"):
            objective_of(wrong)
    with pytest.raises(InvalidSetting, match="cannot draw -1 W"):
        PowerModel(0.0, {"cpu": -1}, {"cpu": "given"})


def test_every_number_changes_what_is_chosen() -> None:
    situation = situation_of(TRUTH)

    def first(settings: ObjectiveSettings) -> Split:
        return (
            ObjectivePolicy(objective_of(100.0), HUNGRY_GPU, settings).choose(situation, Observations()).split
        )

    assert first(ObjectiveSettings(cuts=2)) != first(ObjectiveSettings())
    seen = Observations()
    for _ in range(3):
        seen.add(PastLaunch({"cpu": 1.0}, 2e-2, {"cpu": 2e-2}))
    choice = Choice(Split.alone("cpu"), 2e-2, "a test")
    for as_expected, stands in ((0.2, False), (0.5, True)):
        policy = ObjectivePolicy(Objective("energy"), ALIKE, ObjectiveSettings(as_expected=as_expected))
        assert policy.stands(seen, choice, 1.4 * 2e-2) is stands
    with pytest.raises(InvalidSetting, match="as_expected more than 0"):
        ObjectiveSettings(as_expected=0.0)


def test_a_forecast_that_claims_to_be_exact_is_taken_to_be_off_a_little() -> None:
    gpu = TRUTH["gpu"].seconds(1.0)
    devices = situation_of(TRUTH).devices
    exact = Situation(devices, 4096, lambda: Forecast(TRUTH, 1.0, "a test"), "a test")
    seen = Observations()
    for _ in range(3):
        seen.add(PastLaunch({"cpu": 1.0}, 0.97 * gpu, {"cpu": 0.97 * gpu}))

    def tried(least_spread: float) -> bool:
        policy = ObjectivePolicy(Objective("energy"), ALIKE, ObjectiveSettings(least_spread=least_spread))
        return policy.choose(exact, seen).split.shares.get("gpu", 0.0) == 1.0

    assert not tried(1.001)
    assert tried(1.5)
