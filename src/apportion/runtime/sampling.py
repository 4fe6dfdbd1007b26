"""Measuring: warm up, repeat until the interval of the median is narrow, report median and interval."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from apportion.errors import InvalidSetting

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Repeats:
    """When to stop repeating."""

    width: float = 0.05
    "The interval of the median, over the median, at which it is narrow enough."
    least: int = 5
    most: int = 50
    seconds: float = 5.0
    "A budget: no repeat begins after it."
    warm_up: int = 1

    def __post_init__(self) -> None:
        if not self.width > 0:
            raise InvalidSetting(f"width must be more than 0, not {self.width}")
        if not 1 <= self.least <= self.most:
            raise InvalidSetting(
                f"least and most must be 1 <= least <= most, not {self.least} and {self.most}"
            )
        if self.seconds <= 0 or self.warm_up < 0:
            raise InvalidSetting("seconds must be more than 0, and warm_up not negative")


@dataclass(frozen=True)
class Measured:
    """A quantity measured several times."""

    median: float
    low: float
    high: float
    "The interval that holds the true median with a confidence of 95 %, as far as the repeats allow."
    count: int

    @property
    def width(self) -> float:
        """The interval over the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summary(values: Sequence[float]) -> Measured:
    """Median and its interval, by order statistics: nothing is assumed of the distribution."""
    if not values:
        raise InvalidSetting("Nothing was measured")
    ordered = sorted(values)
    count = len(ordered)
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    rank = _rank(count)
    return Measured(median, ordered[rank], ordered[count - 1 - rank], count)


def measure(action: Callable[[], float], repeats: Repeats) -> tuple[Measured, list[float]]:
    """Call `action`, which returns seconds, until its median is known well enough; all values, in order."""
    started = time.monotonic()
    for _ in range(repeats.warm_up):
        action()
    values: list[float] = []
    while len(values) < repeats.most:
        values.append(action())
        if len(values) >= repeats.least and summary(values).width <= repeats.width:
            break
        if time.monotonic() - started > repeats.seconds:
            break
    return summary(values), values


def _rank(count: int) -> int:
    """How many values may be cut from each end so that the rest holds the median with the confidence."""
    tail, rank = 0.0, -1
    for k in range(count // 2):
        tail += math.comb(count, k) / 2**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        rank = k
    return max(rank, 0)
