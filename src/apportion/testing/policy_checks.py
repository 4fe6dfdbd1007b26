"""What every policy promises, as tests to inherit."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import Choice, Observations, PastLaunch
from apportion.coexecution.policies.base import Policy, Situation
from apportion.runtime.base import DeviceInfo
from apportion.runtime.split import Split

GROUPS = 1000
SHARING_SECONDS = 3e-4
"What a shared launch takes on top, in these checks."
TRUTHS: dict[str, Mapping[str, CostModel]] = {
    "one device": {"cpu": CostModel(1e-4, 1e-2)},
    "alike": {"cpu": CostModel(1e-4, 1e-2), "gpu": CostModel(2e-4, 8e-3)},
    "a fast device": {"cpu": CostModel(1e-4, 5e-2), "gpu": CostModel(2e-3, 1e-3)},
    "a short launch": {"cpu": CostModel(2e-5, 1e-4), "gpu": CostModel(3e-4, 1e-5)},
    "three": {"cpu": CostModel(1e-4, 2e-2), "cpu2": CostModel(1e-4, 3e-2), "gpu": CostModel(1e-3, 1e-2)},
}
"What devices really take, by what is special about it."


def situation_of(truth: Mapping[str, CostModel], off: float = 1.0, obstacle: str = "") -> Situation:
    """A launch whose forecast takes the last device to be slower than it is by the factor `off`."""
    last = list(truth)[-1]
    models = {
        name: CostModel(model.fixed * off, model.rate * off) if name == last else model
        for name, model in truth.items()
    }
    forecast = Forecast(models, 2.0, "a check", SHARING_SECONDS)
    devices = (
        DeviceInfo(name, name, name[:3], "a vendor", "a platform", "1", "1", 8, 1 << 30, 1 << 15, 1024)
        for name in truth
    )
    return Situation(tuple(devices), GROUPS, lambda: forecast, obstacle)


def seconds_of(truth: Mapping[str, CostModel], split: Split) -> dict[str, float]:
    """What each device takes for its part."""
    return {part.device: truth[part.device].seconds(part.groups / GROUPS) for part in split.parts(GROUPS)}


def launched(truth: Mapping[str, CostModel], split: Split) -> PastLaunch:
    """What a launch under a split is seen to take."""
    devices = seconds_of(truth, split)
    shares = {part.device: part.groups / GROUPS for part in split.parts(GROUPS)}
    return PastLaunch(shares, max(devices.values()) + SHARING_SECONDS * (len(devices) > 1), devices)


def play(
    policy: Policy, truth: Mapping[str, CostModel], situation: Situation, launches: int
) -> Iterator[tuple[Choice, float]]:
    """What a policy chooses launch after launch, and what that takes."""
    seen = Observations()
    for _ in range(launches):
        choice = policy.choose(situation, seen)
        for _ in range(1000):
            if not choice.trial:
                break
            seen.trials.append((choice.split, launched(truth, choice.split).seconds))
            choice = policy.choose(situation, seen)
        assert not choice.trial, "a policy must not ask for trials without end"
        launch = launched(truth, choice.split)
        yield choice, launch.seconds
        seen.add(launch)
        assert isinstance(policy.stands(seen, choice, launch.seconds), bool)


class PolicyChecks:
    """Inherit from this in the tests of a policy, and say how to make one:

    ```python
    class TestMyPolicy(PolicyChecks):
        def policy(self) -> Policy:
            return MyPolicy()
    ```
    """

    def policy(self) -> Policy:
        """A policy to be checked; each check makes its own."""
        raise TypeError(f"{type(self).__name__} must say how to make its policy")

    def test_a_choice_gives_every_device_a_share_and_together_they_make_one(self) -> None:
        for name, truth in TRUTHS.items():
            for off in (0.2, 1.0, 5.0):
                for choice, _ in play(self.policy(), truth, situation_of(truth, off), 12):
                    assert list(choice.split.shares) == list(truth), name
                    assert sum(part.groups for part in choice.split.parts(GROUPS)) == GROUPS, name
                    assert choice.reason, name

    def test_the_same_question_has_the_same_answer_and_the_observations_stay_as_they_are(self) -> None:
        truth = TRUTHS["alike"]
        seen = Observations()
        for split in (Split({"cpu": 1.0, "gpu": 0.0}), Split.even(["cpu", "gpu"])):
            before = copy.deepcopy(seen)
            policy = self.policy()
            first, second = (policy.choose(situation_of(truth), seen) for _ in range(2))
            assert (first.split, first.seconds) == (second.split, second.seconds)
            assert seen == before
            seen.add(launched(truth, split))

    def test_what_launches_teach_is_in_the_observations_and_not_in_the_policy(self) -> None:
        truth = TRUTHS["a fast device"]
        used, fresh = self.policy(), self.policy()
        for _ in play(used, truth, situation_of(truth), 5):
            pass
        assert (
            used.choose(situation_of(truth), Observations()).split
            == fresh.choose(situation_of(truth), Observations()).split
        )

    def test_a_policy_that_learns_settles(self) -> None:
        if not self.policy().learns:
            return
        for name, truth in TRUTHS.items():
            shares = [choice.split for choice, _ in play(self.policy(), truth, situation_of(truth, 3.0), 40)]
            assert len({tuple(split.shares.items()) for split in shares[-5:]}) == 1, name

    def test_a_policy_that_learns_ends_near_the_best_device_even_if_the_forecast_is_wrong(self) -> None:
        if not self.policy().learns:
            return
        for name, truth in TRUTHS.items():
            best = min(model.seconds(1.0) for model in truth.values())
            for off in (0.2, 5.0):
                *_, (_, seconds) = play(self.policy(), truth, situation_of(truth, off), 40)
                assert seconds <= 1.05 * best, f"{name}, forecast off by {off}"

    def test_a_policy_that_learns_uses_one_device_where_the_work_cannot_be_shared(self) -> None:
        if not self.policy().learns:
            return
        for truth in TRUTHS.values():
            for choice, _ in play(self.policy(), truth, situation_of(truth, 1.0, "a check"), 12):
                assert len(choice.split.parts(GROUPS)) == 1
