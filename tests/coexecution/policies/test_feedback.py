from __future__ import annotations

import pytest

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import SPEEDS, Forecast
from apportion.coexecution.observations import Choice, Observations, PastLaunch
from apportion.coexecution.policies.base import Situation
from apportion.coexecution.policies.feedback import FeedbackPolicy, one_device
from apportion.coexecution.policies.learned import best_shared, predicted
from apportion.errors import InvalidSetting
from apportion.runtime.base import DeviceInfo
from apportion.runtime.split import Split

CPU, GPU = (
    DeviceInfo(name, name, name, "v", "p", "d", "1", 8, 1 << 30, 1 << 15, 1024) for name in ("cpu", "gpu")
)
BOTH = [CPU, GPU]
POLICY = FeedbackPolicy()
EVEN = Forecast({"cpu": CostModel(0.0, 1.0), "gpu": CostModel(0.0, 1.0)}, 2.0, "a guess")


def choose(seen: Observations, devices: list[DeviceInfo], forecast: Forecast, groups: int) -> Choice:
    return POLICY.choose(Situation(tuple(devices), groups, lambda: forecast), seen)


def choose_one(seen: Observations, devices: list[DeviceInfo], forecast: Forecast, obstacle: str) -> Choice:
    return one_device(Situation(tuple(devices), 1, lambda: forecast, obstacle), seen)


def prediction_of(forecast: Forecast, devices: list[DeviceInfo]) -> Choice:
    return predicted(forecast, tuple(device.id for device in devices))


def _shared(share: float, cpu: float, gpu: float, merging: float = 0.0) -> PastLaunch:
    return PastLaunch(
        {"cpu": share, "gpu": 1 - share}, max(cpu, gpu) + merging, {"cpu": cpu, "gpu": gpu}, merging
    )


def _alone(device: str, seconds: float) -> PastLaunch:
    return PastLaunch({device: 1.0}, seconds, {device: seconds})


def test_the_first_launch_is_split_as_predicted_and_says_how_sure_that_is() -> None:
    choice = choose(Observations(), BOTH, EVEN, 100)
    assert choice.split.shares == {"cpu": 0.5, "gpu": 0.5}
    assert choice.seconds == 0.5
    assert choice.reason == "predicted from a guess, give or take a factor of 2"


def test_a_small_promise_of_sharing_is_not_followed_before_anything_was_seen() -> None:
    uneven = Forecast({"cpu": CostModel(0.0, 9.0), "gpu": CostModel(0.0, 1.0)}, 1.2, "a model")
    assert prediction_of(uneven, BOTH).split.shares == {"cpu": 0.0, "gpu": 1.0}


def test_a_forecast_that_says_how_sure_it_is_is_bet_upon() -> None:
    near = {"cpu": CostModel(0.0, 1.2), "gpu": CostModel(0.0, 1.0)}
    far = {"cpu": CostModel(0.0, 3.0), "gpu": CostModel(0.0, 1.0)}
    assert prediction_of(Forecast(near, 1.5, "a model", doubt=0.05), BOTH).split.shares[
        "cpu"
    ] == pytest.approx(1 / 2.2, abs=0.03)
    shares = prediction_of(Forecast(far, 1.5, "a model", doubt=0.05), BOTH).split.shares
    assert shares["cpu"] == pytest.approx(0.25, abs=0.03)
    # In a launch of a millisecond starting two devices costs more than they save.
    short = {name: CostModel(0.0, 1e-3 * model.rate) for name, model in near.items()}
    assert (
        prediction_of(Forecast(short, 1.5, "a model", SPEEDS.sharing, doubt=0.05), BOTH).split.shares["cpu"]
        == 0.0
    )
    slow = Forecast({"cpu": CostModel(0.5, 30.0), "gpu": CostModel(0.0, 1.0)}, 1.5, "a model", doubt=0.5)
    assert prediction_of(slow, BOTH).split.shares == {"cpu": 0.0, "gpu": 1.0}


def test_rates_of_a_shared_launch_move_the_cut() -> None:
    seen = Observations([_shared(0.5, 0.55, 0.45)])
    choice = choose(seen, BOTH, EVEN, 1000)
    assert choice.split.shares["cpu"] == pytest.approx(0.45, abs=0.01)
    assert choice.reason.startswith("earlier launches predict")


def test_nothing_is_tried_any_more_once_every_device_was_seen() -> None:
    forecast = Forecast({"cpu": CostModel(0.0, 5.0), "gpu": CostModel(0.3, 7.0)}, 2.5, "speeds")
    cpu = _alone("cpu", 5.8)
    # Sharing was slower than cpu alone, and so would gpu be by what its half took.
    disappointed = choose(Observations([cpu, _shared(0.5, 3.0, 6.2, 0.2)]), BOTH, forecast, 1000)
    assert disappointed.split.shares["cpu"] >= 0.6
    assert disappointed.seconds is not None
    # By what its half took, gpu is faster than anything seen.
    better = choose(Observations([cpu, _shared(0.9, 5.3, 0.2, 0.2)]), BOTH, forecast, 1000)
    assert better.split.shares["gpu"] > 0.5
    # Where sharing won, it goes on.
    won = Observations([cpu, _shared(0.5, 3.0, 2.9, 0.1)])
    assert 0.3 < choose(won, BOTH, forecast, 1000).split.shares["cpu"] < 0.7


def test_another_device_is_tried_alone_where_sharing_would_not_show_what_it_takes() -> None:
    # Merging takes as long as the kernel, so that even a small part for the other would cost too much.
    models = {"cpu": CostModel(0.0, 8.0), "gpu": CostModel(0.0, 9.0)}
    merged = Forecast(models, 5.0, "speeds", sharing_seconds=9.0)
    choice = choose(Observations([_alone("gpu", 9.0)]), BOTH, merged, 1000)
    assert choice.split.shares == {"cpu": 1.0, "gpu": 0.0}
    assert choice.reason == "cpu alone may beat gpu: it is tried once"
    for cpu, best in ((4.0, "cpu"), (20.0, "gpu")):
        seen = Observations([_alone("gpu", 9.0), _alone("cpu", cpu)])
        assert choose(seen, BOTH, merged, 1000).split.shares[best] == 1.0
    slow = Forecast(models | {"cpu": CostModel(0.0, 90.0)}, 5.0, "speeds", sharing_seconds=9.0)
    assert choose(Observations([_alone("gpu", 9.0)]), BOTH, slow, 1000).split.shares["gpu"] == 1.0


def test_what_took_longer_than_predicted_is_partly_taken_for_fixed() -> None:
    forecast = Forecast({"cpu": CostModel(0.0, 1.0), "gpu": CostModel(0.0, 1.0)}, 2.0, "speeds")
    seen = Observations([_shared(0.5, 0.5, 2.0)])
    slow, expected = seen.model("gpu", forecast), seen.model("cpu", forecast)
    assert slow is not None
    assert expected is not None
    assert slow.fixed > 0.2
    assert slow.seconds(0.5) == pytest.approx(2.0, rel=0.05)
    assert expected.fixed == pytest.approx(0.0, abs=0.01)


def test_sharing_is_tried_once_when_the_forecast_against_it_may_be_wrong() -> None:
    against = Forecast({"cpu": CostModel(0.0, 8.0), "gpu": CostModel(0.0, 1.0)}, 4.0, "a model")
    choice = choose(Observations([_alone("gpu", 1.0)]), BOTH, against, 1000)
    # As much as the CPU would do meanwhile if it were slower than expected.
    assert choice.split.shares["cpu"] == pytest.approx(1 / 17)
    assert "it is tried once" in choice.reason
    sure = Forecast(against.models, 1.02, "a model")
    hopeless = Forecast({"cpu": CostModel(0.0, 800.0), "gpu": CostModel(0.0, 1.0)}, 4.0, "a model")
    assert choose(Observations([_alone("gpu", 1.0)]), BOTH, hopeless, 1000).split.shares["cpu"] == 0.001
    assert choose(Observations([_alone("gpu", 1.0)]), BOTH, sure, 1000).split.shares["cpu"] > 0


def test_a_forecast_that_is_wrong_by_far_is_found_out_once_a_launch_counts_little() -> None:
    wrong = Forecast({"cpu": CostModel(0.0, 0.1), "gpu": CostModel(0.05, 6.0)}, 1.3, "a model", doubt=0.2)
    seen = Observations()
    for _ in range(10):
        assert choose(seen, BOTH, wrong, 1000).split.shares == {"cpu": 1.0, "gpu": 0.0}
        seen.add(_alone("cpu", 0.2))
    # It is thought about then, though everything takes what it was chosen for.
    assert not POLICY.stands(seen, Choice(Split.alone("cpu"), 0.2, "a test"), 0.2)
    probing = choose(seen, BOTH, wrong, 1000)
    assert 0 < probing.split.shares["gpu"] <= 0.1
    assert probing.reason == "a small part shows what others take, since cpu alone is known"
    share = probing.split.shares["cpu"]
    seen.add(_shared(share, 0.2 * share, 0.003 * (1 - share)))  # it is sixty times as fast as the CPU
    assert choose(seen, BOTH, wrong, 1000).split.shares["gpu"] > 0.9


def test_sharing_that_a_model_expects_to_win_is_tried_at_once() -> None:
    even = Forecast(EVEN.models, 1.5, "a model", doubt=0.3)
    choice = choose(Observations([_alone("gpu", 1.0)], noted=1), BOTH, even, 1000)
    assert choice.split.shares["cpu"] == pytest.approx(0.5)
    unlikely = Forecast({"cpu": CostModel(0.0, 50.0), "gpu": CostModel(0.0, 1.0)}, 4.0, "a model", doubt=0.3)
    choice = choose(Observations([_alone("gpu", 1.0)], noted=1), BOTH, unlikely, 1000)
    assert choice.split.shares == {"cpu": 0.0, "gpu": 1.0}


def test_nothing_is_probed_where_that_would_cost_more_than_it_can_tell() -> None:
    slow = Forecast({"cpu": CostModel(0.0, 0.1), "gpu": CostModel(0.5, 1.0)}, 1.3, "a model", doubt=0.2)
    assert choose(Observations([_alone("cpu", 0.1)]), BOTH, slow, 1000).split.shares["cpu"] == 1.0
    merging = Forecast(
        {"cpu": CostModel(0.0, 0.1), "gpu": CostModel(0.0, 1.0)}, 1.3, "a model", sharing_seconds=0.05
    )
    assert choose(Observations([_alone("cpu", 0.1)]), BOTH, merging, 1000).split.shares["cpu"] == 1.0


def test_a_cut_that_was_seen_to_be_good_is_kept() -> None:
    seen = Observations([_shared(0.3, 0.5, 0.55), _shared(0.4, 0.7, 0.6), _alone("gpu", 1.0)])
    choice = choose(seen, BOTH, EVEN, 1000)
    assert choice.split.shares["cpu"] == pytest.approx(0.3, abs=0.04)


def test_a_cut_that_was_never_launched_must_promise_more_than_one_that_was() -> None:
    # Both would end at about 0.95 of what the GPU alone is known to take, were the cut moved.
    seen = Observations([_shared(0.2, 1.35, 0.89), _alone("gpu", 1.0)])
    choice = choose(seen, BOTH, EVEN, 1000)
    assert choice.split.shares == {"cpu": 0.0, "gpu": 1.0}
    assert choice.seconds == 1.0
    seen = Observations([_shared(0.2, 0.95, 0.95), _alone("gpu", 1.0)])
    assert choose(seen, BOTH, EVEN, 1000).split.shares == pytest.approx({"cpu": 0.2, "gpu": 0.8}, abs=0.03)


def test_what_merging_costs_counts_against_sharing() -> None:
    seen = Observations([_shared(0.5, 0.5, 0.5, merging=0.6), _alone("cpu", 1.0), _alone("gpu", 1.0)])
    assert max(choose(seen, BOTH, EVEN, 1000).split.shares.values()) == 1.0


def test_two_cuts_teach_fixed_cost_and_rate() -> None:
    seen = Observations([_shared(share, 0.3 + 2.0 * share, 1.0) for share in (0.1, 0.5, 0.9) * 2])
    model = seen.model("cpu", None)
    assert model is not None
    assert (model.fixed, model.rate) == pytest.approx((0.3, 2.0), rel=0.35)


def test_a_device_that_was_never_seen_is_as_forecast() -> None:
    assert Observations().model("cpu", EVEN) == CostModel(0.0, 1.0)
    assert Observations().model("cpu", None) is None


def test_launches_in_which_a_driver_compiled_are_forgotten_once_there_is_a_warm_one() -> None:
    seen = Observations()
    seen.add(PastLaunch({"cpu": 1.0}, 9.0, {"cpu": 9.0}, cold=True))
    assert seen.alone() == {"cpu": 9.0}
    seen.add(_alone("cpu", 1.0))
    assert seen.alone() == {"cpu": 1.0}


def test_a_part_has_at_least_one_work_group() -> None:
    models = {"cpu": CostModel(0.0, 1000.0), "gpu": CostModel(0.0, 1.0)}
    assert best_shared(models, 0.0, 10) is None
    found = best_shared(models, 0.0, 10_000)
    assert found is not None
    assert found[0].shares["cpu"] == pytest.approx(1 / 1001)


def test_a_spread_is_a_factor() -> None:
    with pytest.raises(InvalidSetting, match=r"A forecast's spread is a factor of at least 1, not 0.5"):
        Forecast(EVEN.models, 0.5, "a guess")


def test_a_choice_stands_until_two_launches_in_a_row_take_longer_than_it_promised() -> None:
    seen = Observations([_alone("gpu", 1.0), _shared(0.1, 3.0, 0.9), _alone("gpu", 1.0)])
    choice = choose(seen, BOTH, EVEN, 1000)
    assert choice.seconds == pytest.approx(1.0)
    assert POLICY.stands(seen, choice, 1.1)
    assert POLICY.stands(seen, choice, 1.2)  # once may be noise
    assert POLICY.stands(seen, choice, 1.1)
    assert POLICY.stands(seen, choice, 1.2)
    assert not POLICY.stands(seen, choice, 1.2)
    seen.decided = choice
    seen.add(_alone("gpu", 1.2))
    assert seen.decided is None
    # What is launched to see what it takes promised nothing.
    first = Observations([_alone("gpu", 1.0)])
    assert not POLICY.stands(first, choose(first, BOTH, EVEN, 1000), 0.1)


def test_a_cut_that_is_new_and_takes_longer_than_it_promised_is_thought_about_at_once() -> None:
    seen = Observations([_alone("gpu", 1.0), _shared(0.1, 0.5, 0.6)])
    choice = Choice(Split({"cpu": 0.3, "gpu": 0.7}), 0.7, "a test")
    seen.add(_shared(0.3, 1.4, 0.6))
    assert not POLICY.stands(seen, choice, 1.4)


def test_a_launch_right_after_other_devices_counts_as_what_it_would_take_again() -> None:
    seen = Observations()
    seen.add(_alone("gpu", 1.0))
    seen.add(_alone("cpu", 1.05))
    assert seen.alone() == {"gpu": 1.0, "cpu": pytest.approx(0.87 * 1.05)}
    seen.add(_alone("cpu", 1.02))  # what it takes indeed
    assert seen.alone() == {"gpu": 1.0, "cpu": 1.02}
    seen.add(_shared(0.5, 0.6, 0.5))
    assert seen.launches[-1].devices == pytest.approx({"cpu": 0.94 * 0.6, "gpu": 0.94 * 0.5})


def test_what_a_shared_launch_took_beyond_its_devices_counts_against_sharing() -> None:
    shared = PastLaunch({"cpu": 0.5, "gpu": 0.5}, 1.3, {"cpu": 0.5, "gpu": 0.5})
    seen = Observations([shared, _alone("cpu", 1.0), _alone("gpu", 1.0)])
    assert max(choose(seen, BOTH, EVEN, 1000).split.shares.values()) == 1.0


def test_a_device_for_what_cannot_be_shared_is_tried_where_it_is_expected_to_win() -> None:
    forecast = Forecast({"cpu": CostModel(0.0, 1.0), "gpu": CostModel(0.0, 1.2)}, 3.0, "a model", doubt=0.3)
    seen = Observations()
    assert choose_one(seen, BOTH, forecast, "a reason").split == Split.alone("cpu")
    seen.add(_alone("cpu", 1.0))
    assert choose_one(seen, BOTH, forecast, "a reason").split == Split.alone("cpu")
    slow = Observations([_alone("cpu", 4.0)], noted=1)
    assert choose_one(slow, BOTH, forecast, "a reason").split == Split.alone("gpu")
    # What only may win is tried later, and once.
    seen.noted = 10
    tried = choose_one(seen, BOTH, forecast, "a reason")
    assert tried.split == Split.alone("gpu")
    assert tried.reason == "one device: a reason; gpu is tried once"
    seen.add(_alone("gpu", 1.3))
    assert choose_one(seen, BOTH, forecast, "a reason") == Choice(
        Split.alone("cpu"), 1.0, "one device: a reason"
    )


def test_a_device_that_was_only_seen_beside_others_is_tried_alone_where_that_may_do_as_well() -> None:
    forecast = Forecast({"cpu": CostModel(0.0, 3.0), "gpu": CostModel(2.0, 2.0)}, 2.0, "a model", doubt=0.2)
    # The CPU alone was far from what sharing takes, so that it is the GPU that made the difference.
    seen = Observations([_alone("cpu", 6.4), _shared(0.5, 3.3, 3.6)], noted=2)
    choice = choose(seen, BOTH, forecast, 1000)
    assert choice.split.shares == {"cpu": 0.0, "gpu": 1.0}
    assert choice.reason == "gpu alone may do as well: it is tried once"
    # Here sharing gains from both: the GPU alone would take half as long again.
    seen = Observations([_alone("cpu", 4.4), _shared(0.5, 2.2, 2.4)], noted=2)
    even = Forecast({"cpu": CostModel(0.0, 4.4), "gpu": CostModel(0.0, 4.8)}, 1.5, "a model", doubt=0.2)
    assert 0.3 < choose(seen, BOTH, even, 1000).split.shares["gpu"] < 0.7
    seen.noted = 10
    assert choose(seen, BOTH, Forecast(even.models, 2.5, "a model"), 1000).split.shares["gpu"] == 1.0


def test_after_a_first_launch_that_took_far_longer_than_predicted_the_other_device_is_tried() -> None:
    forecast = Forecast({"cpu": CostModel(0.0, 1.1), "gpu": CostModel(0.0, 2.0)}, 2.0, "a model", doubt=0.2)
    choice = choose(Observations([_alone("cpu", 1.9)], noted=1), BOTH, forecast, 1000)
    assert choice.split.shares == {"cpu": 0.0, "gpu": 1.0}
    assert choice.reason == "gpu may do as well as cpu: it is tried once"
    # Not where the other one would take longer still.
    slow = Forecast({"cpu": CostModel(0.0, 1.1), "gpu": CostModel(2.5, 0.5)}, 2.0, "a model", 1.0, doubt=0.2)
    choice = choose(Observations([_alone("cpu", 1.9)], noted=1), BOTH, slow, 1000)
    assert choice.split.shares == {"cpu": 1.0, "gpu": 0.0}


def test_a_device_that_may_well_do_as_well_is_tried_alone_at_the_second_launch_and_not_later() -> None:
    models = {"cpu": CostModel(0.5, 1.0), "gpu": CostModel(1.0, 1.0)}
    forecast = Forecast(models, 1.7, "a model", sharing_seconds=0.4, doubt=0.2)
    seen = Observations()
    seen.add(_alone("cpu", 1.8))  # a fifth more than predicted
    assert choose(seen, BOTH, forecast, 1000).split.shares == {"cpu": 0.0, "gpu": 1.0}
    for gpu, best in ((1.7, "gpu"), (2.2, "cpu")):
        tried = Observations(list(seen.launches), noted=1)
        tried.add(_alone("gpu", gpu))
        assert choose(tried, BOTH, forecast, 1000).split.shares[best] == 1.0
    seen.add(_alone("cpu", 1.8))
    assert choose(seen, BOTH, forecast, 1000).split.shares == {"cpu": 1.0, "gpu": 0.0}
    # Sharing that is expected to win by far comes first, and what is predicted to be slower waits.
    gaining = Forecast(models, 1.7, "a model", doubt=0.2)
    once = Observations([_alone("cpu", 1.8)], noted=1)
    assert 0 < choose(once, BOTH, gaining, 1000).split.shares["gpu"] < 1
    slower = Forecast(models | {"gpu": CostModel(1.0, 1.8)}, 1.7, "a model", sharing_seconds=0.4, doubt=0.2)
    assert choose(once, BOTH, slower, 1000).split.shares == {"cpu": 1.0, "gpu": 0.0}
    # In half a millisecond there is little to win.
    short = {name: CostModel(3e-4 * model.fixed, 3e-4 * model.rate) for name, model in models.items()}
    brief = Forecast(short, 1.7, "a model", sharing_seconds=3e-4, doubt=0.2)
    once = Observations([_alone("cpu", 5.4e-4)], noted=1)
    assert choose(once, BOTH, brief, 1000).split.shares == {"cpu": 1.0, "gpu": 0.0}


def test_after_a_first_shared_launch_the_better_device_is_tried_alone_where_it_may_do_as_well() -> None:
    models = {"cpu": CostModel(0.8, 3.6), "gpu": CostModel(2.5, 1.7)}
    forecast = Forecast(models, 1.8, "a model", sharing_seconds=0.4, doubt=0.2)
    seen = Observations()
    seen.add(PastLaunch({"cpu": 0.65, "gpu": 0.35}, 5.4, {"cpu": 4.9, "gpu": 3.1}))  # 3.7 were predicted
    assert choose(seen, BOTH, forecast, 1000).split.shares == {"cpu": 0.0, "gpu": 1.0}
    seen.add(_alone("gpu", 3.6))
    choice = choose(seen, BOTH, forecast, 1000)
    assert choice.split.shares == {"cpu": 0.0, "gpu": 1.0}
    assert choice.seconds is not None
    # Not where sharing took what was predicted: the GPU alone would have to be much better than that, too.
    expected = Observations()
    expected.add(PastLaunch({"cpu": 0.65, "gpu": 0.35}, 3.7, {"cpu": 3.1, "gpu": 3.1}))
    assert 0 < choose(expected, BOTH, forecast, 1000).split.shares["cpu"] < 1


def test_a_cut_in_which_one_device_waits_long_for_another_is_thought_about_though_it_keeps_its_promise() -> (
    None
):
    models = {"cpu": CostModel(0.8, 3.6), "gpu": CostModel(2.5, 1.7)}
    forecast = Forecast(models, 1.8, "a model", sharing_seconds=0.4, doubt=0.2)
    seen = Observations()
    for share, cpu, gpu in ((0.73, 4.7, 4.2), (0.66, 4.0, 2.6), (0.66, 4.0, 2.4)):  # the first by bad luck
        seen.add(PastLaunch({"cpu": share, "gpu": 1 - share}, max(cpu, gpu) + 0.5, {"cpu": cpu, "gpu": gpu}))
    kept = Choice(Split({"cpu": 0.66, "gpu": 0.34}), 4.5, "a test")
    assert not POLICY.stands(seen, kept, 4.5)
    assert choose(seen, BOTH, forecast, 1000).split.shares["cpu"] < 0.55
    seen.add(PastLaunch({"cpu": 0.5, "gpu": 0.5}, 3.6, {"cpu": 3.1, "gpu": 2.9}))
    assert POLICY.stands(seen, Choice(Split({"cpu": 0.5, "gpu": 0.5}), 3.6, "a test"), 3.6)
