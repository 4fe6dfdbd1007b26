"""Means over a normal distribution by a few points: the quadrature of Gauss and Hermite."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray


@cache
def normal_points(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(P,) deviations from the mean in standard deviations, and how much each counts; the weights make 1.

    Exact for polynomials up to the degree 2 `count` - 1.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return points, weights / math.sqrt(2 * math.pi)
