"""The scale on which a search compares values: logarithms; on request with the slow half pressed together.

A few configurations of many programs take a hundred times as long as the others. On a logarithmic scale they
decide what is far and what is near, and a model spends itself on telling slow from very slow, of which a
search needs to know nothing. Pressed together, differences above the median count by their logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MOST = 700.0
"The largest number whose exponential is finite."


@dataclass(frozen=True)
class Scale:
    """From values to targets, and back."""

    by_log: bool
    "Whether values are compared by their logarithms: all but those that may be zero or less."
    middle: float
    "The median of the logarithms; above it differences are pressed together."
    reach: float
    "How far above the middle a difference counts half of what it would below; infinity presses nothing."
    highest: float
    "The largest logarithm that a target can mean."

    @classmethod
    def of(cls, values: Floats, *, slow_reach: float = math.inf) -> Self:
        """The scale that finite values ask for.

        Args:
            values: at least one.
            slow_reach: the reach, as a part of the distance from the smallest value to the median.
        """
        by_log = bool((values > 0).all())
        logs = np.log(values) if by_log else values
        low, middle, high = float(logs.min()), float(np.median(logs)), float(logs.max())
        below = (middle - low) or (high - middle) or 1.0
        return cls(by_log, middle, slow_reach * below, high + (high - low))

    def targets(self, values: Floats) -> Floats:
        """(n,) what values are on the scale."""
        logs: Floats = np.log(values) if self.by_log else values
        if np.isinf(self.reach):
            return logs
        above = np.maximum(logs - self.middle, 0.0)
        found: Floats = np.minimum(logs, self.middle) + self.reach * np.log1p(above / self.reach)
        return found

    def logs(self, targets: Floats) -> Floats:
        """(n,) the logarithms that targets mean; plain values where those are compared."""
        if np.isinf(self.reach):
            return np.minimum(targets, self.highest)
        above = np.clip((targets - self.middle) / self.reach, 0.0, _MOST)
        found: Floats = np.minimum(targets, self.middle) + self.reach * np.expm1(above)
        return np.minimum(found, self.highest)

    def values(self, logs: Floats) -> Floats:
        """(n,) the values of logarithms."""
        return np.exp(np.minimum(logs, _MOST)) if self.by_log else logs
