"""Scaling: to mean 0 and deviation 1, fitted on training rows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting


@dataclass(frozen=True, eq=False)
class Standard:
    """Each column less its mean, divided by its deviation; a constant column becomes 0."""

    mean: NDArray[np.float64]  # (F,)
    deviation: NDArray[np.float64]  # (F,), 1 where a column is constant

    @classmethod
    def fit(cls, rows: NDArray[np.float64]) -> Self:
        """The scaling of these rows (N, F): give it the training rows and no others."""
        if rows.ndim != 2 or len(rows) == 0:
            raise InvalidSetting(
                f"Scaling is fitted to rows of features, not to an array of shape {rows.shape}"
            )
        deviation = rows.std(axis=0)
        return cls(rows.mean(axis=0), np.where(deviation > 1e-12, deviation, 1.0))

    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows (N, F), scaled."""
        scaled: NDArray[np.float64] = (rows - self.mean) / self.deviation
        return scaled
