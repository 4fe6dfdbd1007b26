"""What is believed of times: the closed form is what numerical integration gives."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

from apportion.coexecution.expected_times import BELIEVING, Belief, BeliefSettings
from apportion.errors import InvalidSetting

FIXED_SPREAD = BeliefSettings(alike=0.4, noise=0.2, late=0.1, part=1.0, sure=1e9)
"Nothing is learned about how wrong forecasts are, so that the posterior is normal."


def _grid(middle: float, deviation: float, count: int = 241) -> np.ndarray:
    return middle + deviation * np.linspace(-6, 6, count)


def _weighed(values: np.ndarray, density: np.ndarray) -> tuple[float, float]:
    density = density / density.sum()
    mean = float((density * values).sum())
    return mean, math.sqrt(float((density * (values - mean) ** 2).sum()))


def test_a_measurement_on_one_device_moves_both_as_bayes_rule_says() -> None:
    belief = Belief({"cpu": 1e-3, "gpu": 4e-3}, 3.0, FIXED_SPREAD)
    deviation = belief.deviation("cpu")
    cpu, gpu = np.meshgrid(_grid(math.log(1e-3), deviation), _grid(math.log(4e-3), deviation), indexing="ij")
    off = np.stack([cpu - math.log(1e-3), gpu - math.log(4e-3)])
    prior = np.linalg.inv(deviation**2 * np.array([[1.0, 0.4], [0.4, 1.0]]))
    log_density = -0.5 * np.einsum("aij,ab,bij->ij", off, prior, off)
    for seconds, times in ((2.5e-3, 1), (2.1e-3, 3)):
        belief.observe("cpu", seconds, times)
        variance = 0.2**2 / times + (0.1 / times) ** 2
        log_density -= 0.5 * (math.log(seconds) - cpu) ** 2 / variance
        density = np.exp(log_density - log_density.max())
        for name, values in (("cpu", cpu), ("gpu", gpu)):
            mean, spread = _weighed(values, density)
            assert math.log(belief.seconds(name)) == pytest.approx(mean, abs=1e-3)
            assert belief.deviation(name) == pytest.approx(spread, rel=1e-2)


@pytest.mark.parametrize(("part", "share", "taken"), [(0.1, 0.5, 0.8), (0.04, 0.17, 0.5), (0.5, 0.25, 0.4)])
def test_a_part_of_the_work_teaches_about_the_whole_as_bayes_rule_says(
    part: float, share: float, taken: float
) -> None:
    """Nearly: what is believed afterwards is taken to be normal, which it is not."""
    belief = Belief({"cpu": 1.0}, 2.0, FIXED_SPREAD, parts={"cpu": part})
    before = belief.deviation("cpu")
    whole, odds = np.meshgrid(_grid(0.0, before), _grid(math.log(part / (1 - part)), 1.0), indexing="ij")
    fixed = 1 / (1 + np.exp(-odds))
    expected = whole + np.log(fixed + (1 - fixed) * share)
    log_density = -0.5 * (whole / before) ** 2 - 0.5 * (odds - math.log(part / (1 - part))) ** 2
    log_density -= 0.5 * (math.log(taken) - expected) ** 2 / (0.2**2 + 0.1**2)
    mean, spread = _weighed(whole, np.exp(log_density - log_density.max()))
    belief.observe("cpu", taken, share=share)
    assert abs(math.log(belief.seconds("cpu")) - mean) < 0.25 * before
    assert belief.deviation("cpu") == pytest.approx(spread, rel=0.25)
    assert belief.deviation("cpu") < before


def test_a_forecast_that_was_off_by_much_is_trusted_less_elsewhere_and_one_that_held_more() -> None:
    deviations = {}
    for name, seconds in (("as said", 1.0), ("off", 40.0)):
        belief = Belief({"cpu": 1.0, "gpu": 1.0}, 3.0)
        deviations["before"] = belief.deviation("gpu")
        belief.observe("cpu", seconds)
        deviations[name] = belief.deviation("gpu")
    assert deviations["as said"] < 0.85 * deviations["before"]
    assert deviations["off"] > 1.1 * deviations["before"]


def test_a_median_of_many_launches_counts_more_than_as_many_single_ones_would() -> None:
    """A launch that something disturbs spoils itself, not the median."""
    assert BELIEVING.variance(5) < BELIEVING.variance() / 5


def test_what_a_device_may_save_is_the_integral_over_what_it_may_take() -> None:
    belief = Belief({"cpu": 2e-3}, 2.0)
    values = _grid(math.log(2e-3), belief.deviation("cpu"), 4001)
    density = np.exp(-0.5 * ((values - math.log(2e-3)) / belief.deviation("cpu")) ** 2)
    saved = np.maximum(0.0, 1.5e-3 - np.exp(values))
    assert belief.gain("cpu", 1.5e-3) == pytest.approx((density * saved).sum() / density.sum(), rel=1e-3)


def test_each_device_may_have_a_spread_of_its_own() -> None:
    belief = Belief({"cpu": 1.0, "gpu": 1.0}, {"cpu": 3.0, "gpu": 1.3})
    assert belief.deviation("cpu") == pytest.approx(math.log(3.0) / 1.8856)
    assert belief.deviation("gpu") == pytest.approx(math.log(1.3) / 1.8856)


def test_numbers_check_themselves() -> None:
    for each in fields(BeliefSettings):
        with pytest.raises(InvalidSetting):
            BeliefSettings(**{each.name: -1})


def test_one_measurement_widens_what_is_believed_of_other_devices_up_to_a_factor() -> None:
    deviations = []
    for most in (1.0, 2.0, 100.0):
        belief = Belief({"cpu": 1e-3, "gpu": 1e-3}, 1.5, BeliefSettings(most_surprise=most))
        belief.observe("cpu", 1.0)  # a thousand times what was predicted
        deviations.append(belief.deviation("gpu"))
    assert deviations[1] == pytest.approx(math.sqrt(2) * deviations[0], rel=0.05)
    assert deviations[2] > 2 * deviations[1]
