"""What is believed of a kernel's time on each device: normal in the logarithm, corrected by what is measured.

A device takes W × (p + (1 - p) × share): W seconds for everything, of which the part p does not shrink with
the share. The prior comes from a forecast and its doubt. A forecast that is wrong about one device is wrong
about the others in part, so that a measurement on one of them moves all. The posterior is closed: no
sampling.
Launches of everything are linear in log W; for those of a part the nearest line is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.normal_points import normal_points
from apportion.errors import InvalidSetting

Numbers = NDArray[np.float64]
_FOUR_IN_FIVE = 1.8856
"Deviations within which four in five values of Student's distribution lie, with two degrees of freedom."


@dataclass(frozen=True)
class BeliefSettings:
    """How sure forecasts and measurements are.

    Estimated by `python -m reproduction policies fit` from launches of a campaign on a Xeon with an H200, in
    which no kernel of the suite is (`docs/results/policies.md`), unless they say that they were chosen.
    """

    alike: float = 0.4
    "The correlation of a forecast's errors between devices."
    noise: float = 0.13
    """The standard deviation of the log of a launch's time, where nothing disturbs it: 0.16 on the CPU and
    0.10 on the GPU."""
    noise_counts: float = 4.0
    "Launches as which that counts where repeated launches say how much they vary. Chosen."
    late: float = 0.29
    """The same of what disturbs single launches. A median of several is spoilt only if several of them were
    late: what it is off by falls with their number, not with the root of it. 0.35 and 0.22 there."""
    sure: float = 2.0
    """Measured times as which the spread of a forecast counts, where they say that it is wrong: the degrees
    of freedom of Student's distribution, which fits the errors best with two."""
    part: float = 1.3
    "The standard deviation of the log odds of the part that does not shrink with the share."
    least_part: float = 0.005
    """The part that does not shrink with the share is taken to be at least this. Chosen, as the next: 0 and 1
    could never be left again, whatever is measured."""
    most_part: float = 0.95
    "And at most this."
    least_spread: float = 0.05
    "The natural logarithm of the least factor by which a forecast is taken to be off. Chosen."
    most_noise: float = 3.0
    """Standard deviations of the noise beyond which a time is not what was expected; in the estimate of the
    noise a time that is farther off counts like one that is so far off. Chosen: one launch in 370."""
    most_surprise: float = 2.0
    """The factor by which one measurement makes a variance larger, at most. Chosen: with more, a device
    seemed too dear ever to be tried."""

    def __post_init__(self) -> None:
        above_0 = min(self.noise, self.noise_counts, self.sure, self.part)
        if not (0 <= self.alike < 1 and above_0 > 0 and self.late >= 0):
            raise InvalidSetting(
                f"alike must lie from 0 to below 1, noise and part above 0, and late from 0, not {self}"
            )
        if not 0 < self.least_part < self.most_part < 1:
            raise InvalidSetting(f"0 < least_part < most_part < 1 must hold, not {self}")
        if not (self.least_spread > 0 and self.most_noise > 0):
            raise InvalidSetting(f"least_spread and most_noise must be above 0, not {self}")
        if not self.most_surprise >= 1:
            raise InvalidSetting(f"most_surprise is a factor of at least 1, not {self.most_surprise}")

    def variance(self, times: float = 1.0) -> float:
        """Of the log of the median of so many launches."""
        return self.noise**2 / times + (self.late / times) ** 2


BELIEVING = BeliefSettings()


class Belief:
    """The time of one kernel on each device.

    Args:
        seconds: device → what is predicted for everything.
        spread: the factor within which the truth lies four times in five; one for all devices, or each's.
        parts: device → the part of that which does not shrink with the share. Where it is not said, all
            launches are launches of everything.
    """

    def __init__(
        self,
        seconds: Mapping[str, float],
        spread: float | Mapping[str, float],
        settings: BeliefSettings = BELIEVING,
        *,
        parts: Mapping[str, float] | None = None,
    ) -> None:
        self.names = list(seconds)
        self.sure = settings.sure
        "Devices' times as which the forecast's spread counts: more with each that is measured."
        self.settings = settings
        self._places = {name: place for place, name in enumerate(self.names)}
        count = len(self.names)
        odds = [_log_odds(parts[name], settings) for name in self.names] if parts is not None else []
        self.mean: Numbers = np.array([*(math.log(max(each, 1e-9)) for each in seconds.values()), *odds])
        "(D,) log seconds for everything, or (2 D,): then the log odds of the parts that do not shrink."
        factors = [spread[name] for name in self.names] if isinstance(spread, Mapping) else [spread] * count
        least = math.exp(settings.least_spread)
        deviations = np.array([math.log(max(each, least)) / _FOUR_IN_FIVE for each in factors])
        same = settings.alike
        self.covariance: Numbers = np.zeros((len(self.mean), len(self.mean)))
        self.covariance[:count, :count] = np.outer(deviations, deviations) * (
            same * np.ones((count, count)) + (1 - same) * np.eye(count)
        )
        self.covariance[count:, count:] = settings.part**2 * np.eye(len(odds))

    def observe(self, device: str, seconds: float, times: float = 1.0, *, share: float = 1.0) -> None:
        """Take account of a time that was measured, or of the median of several.

        Args:
            share: the part of the work that was done.
        """
        expected, slope, bent = self.log_time(device, share)
        column = self.covariance @ slope
        believed = float(slope @ column)
        total = believed + bent + self.settings.variance(times)
        # A forecast that is off by more than expected here is taken to be worse elsewhere, too.
        part = believed / total
        surprise = (math.log(max(seconds, 1e-9)) - expected) ** 2 / total
        factor = min((self.sure + part * surprise) / (self.sure + part), self.settings.most_surprise)
        self.sure += part
        self.covariance = factor * self.covariance
        column = factor * column
        gain = column / (slope @ column + bent + self.settings.variance(times))
        self.mean = self.mean + gain * (math.log(max(seconds, 1e-9)) - expected)
        self.covariance = self.covariance - np.outer(gain, column)

    def log_time(self, device: str, share: float = 1.0) -> tuple[float, Numbers, float]:
        """What is believed of the log of the time for a share: its mean, by how much each entry of `mean`
        moves it, and the variance that this leaves."""
        place, count = self._places[device], len(self.names)
        slope = np.zeros(len(self.mean))
        slope[place] = 1.0
        if share >= 1 or len(self.mean) == count:
            return float(self.mean[place]), slope, 0.0
        shares = np.ones((1, count))
        shares[0, place] = share
        logs, slopes, bent = self.log_times(shares)
        slope[count + place] = slopes[0, place]
        return float(logs[0, place]), slope, float(bent[0, place])

    def log_times(self, shares: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The mean of the log of every device's time, by how much the log odds of its part move it, and the
        variance that this leaves: the line is the one that is nearest in the mean over what the part may be.
        Only where parts were said.

        Args:
            shares: (C, D) the devices' shares; one of 0 counts as everything.

        Returns:
            (C, D) each.
        """
        count = len(self.names)
        variance = np.maximum(np.diag(self.covariance)[count:], 1e-12)
        points, weights = normal_points(5)
        off = points[:, None] * np.sqrt(variance)  # (5, D)
        part = 1 / (1 + np.exp(-(self.mean[count:] + off)))
        whole = np.where(shares > 0, shares, 1.0)[:, None, :]
        log_left = np.log(part + (1 - part) * whole)  # (C, 5, D)
        means = weights @ log_left
        slopes = (weights @ (log_left * off)) / variance
        bent = weights @ log_left**2 - means**2 - slopes**2 * variance
        return self.mean[:count] + means, slopes, np.maximum(bent, 0.0)

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


def _log_odds(part: float, settings: BeliefSettings) -> float:
    part = min(max(part, settings.least_part), settings.most_part)
    return math.log(part / (1 - part))


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
