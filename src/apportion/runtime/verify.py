"""Comparing results of two runs: bytes for integers, a tolerance for floating point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = {2: (1e-2, 1e-3), 4: (1e-4, 1e-6), 8: (1e-9, 1e-12)}
"""Bytes of a floating-point type → (relative tolerance, absolute tolerance per unit of the largest value).

Compilers contract multiply-adds and order sums differently; what is wrong is off by far more.
"""


def difference(found: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """What is different, in words; None when the arrays agree."""
    found, expected = found.reshape(-1), expected.reshape(-1)
    # Most elements are the same to the bit; only the others are worth a closer look. A NaN is among those.
    wrong = np.flatnonzero(found != expected)
    if len(wrong) and found.dtype.kind in "fc":
        wrong = wrong[_far(found[wrong], expected[wrong], _largest(expected))]
    if not len(wrong):
        return None
    first = int(wrong[0])
    values = f"{found[first]} against {expected[first]}"
    return f"{len(wrong)} of {len(found)} elements differ, first element {first}: {values}"


def _largest(values: NDArray[Any]) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if len(finite) else 0.0


def _far(found: NDArray[Any], expected: NDArray[Any], largest: float) -> NDArray[np.bool_]:
    size = found.dtype.itemsize // (2 if found.dtype.kind == "c" else 1)
    relative, absolute = TOLERANCE.get(size, TOLERANCE[8])
    close: NDArray[np.bool_] = np.isclose(
        found, expected, rtol=relative, atol=absolute * largest, equal_nan=True
    )
    return ~close
