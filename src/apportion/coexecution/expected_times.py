"""What is believed of a kernel's time on each device: normal in the logarithm, corrected by what is measured.

The prior comes from a forecast and its doubt. A forecast that is wrong about one device is wrong about the
others in part, so that a measurement on one of them moves all. The posterior is closed: no sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting

_FOUR_IN_FIVE = 1.2816
"Standard deviations within which four in five values lie."


@dataclass(frozen=True)
class BeliefSettings:
    """How sure forecasts and measurements are."""

    alike: float = 0.4
    """The correlation of a forecast's errors between devices. Chosen between two values measured with suites
    held out of the campaign: 0.26 for the GPU given the CPU, 0.59 for the CPU."""
    noise: float = 0.1
    "The standard deviation of the log of a launch's time. Chosen; not fitted to measured launches yet."

    def __post_init__(self) -> None:
        if not (0 <= self.alike < 1 and self.noise > 0):
            raise InvalidSetting(f"alike must lie from 0 to below 1 and noise above 0, not {self}")


BELIEVING = BeliefSettings()


class Belief:
    """The time of one kernel on each device.

    Args:
        seconds: device → what is predicted.
        spread: the factor within which the truth lies four times in five.
    """

    def __init__(
        self, seconds: Mapping[str, float], spread: float, settings: BeliefSettings = BELIEVING
    ) -> None:
        self.names = list(seconds)
        self.settings = settings
        self._places = {name: place for place, name in enumerate(self.names)}
        self.mean: NDArray[np.float64] = np.log([max(each, 1e-9) for each in seconds.values()])
        deviation = max(math.log(max(spread, 1.0)), 0.05) / _FOUR_IN_FIVE
        count = len(self.names)
        alike = settings.alike
        self.covariance = deviation**2 * (alike * np.ones((count, count)) + (1 - alike) * np.eye(count))

    def observe(self, device: str, seconds: float, times: float = 1.0) -> None:
        """Take account of a time that was measured, or of the median of several."""
        place = self._places[device]
        column = self.covariance[:, place].copy()
        gain = column / (column[place] + self.settings.noise**2 / times)
        self.mean = self.mean + gain * (math.log(max(seconds, 1e-9)) - self.mean[place])
        self.covariance = self.covariance - np.outer(gain, column)

    def seconds(self, device: str) -> float:
        """The median of what is believed."""
        return math.exp(self.mean[self._places[device]])

    def deviation(self, device: str) -> float:
        """The standard deviation of the logarithm."""
        place = self._places[device]
        return math.sqrt(max(float(self.covariance[place, place]), 1e-12))

    def quantiles(self, device: str, deviations: Sequence[float]) -> list[float]:
        """Seconds so many standard deviations above the median."""
        median, deviation = self.seconds(device), self.deviation(device)
        return [median * math.exp(deviation * each) for each in deviations]

    def gain(self, device: str, best: float) -> float:
        """By how many seconds a launch is expected to be shorter, if the device is used where it takes less
        than `best` and only there: E[max(0, best - T)]."""
        mean, deviation = float(self.mean[self._places[device]]), self.deviation(device)
        if best <= 0:
            return 0.0
        below = (math.log(best) - mean) / deviation
        expected = math.exp(mean + deviation**2 / 2)
        return max(0.0, best * _normal(below) - expected * _normal(below - deviation))


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
