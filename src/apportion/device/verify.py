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
    wrong = _far(found, expected) if found.dtype.kind in "fc" else found != expected
    count = int(np.count_nonzero(wrong))
    if count == 0:
        return None
    first = int(np.flatnonzero(wrong)[0])
    values = f"{found[first]} against {expected[first]}"
    return f"{count} of {len(found)} elements differ, first element {first}: {values}"


def _far(found: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    size = found.dtype.itemsize // (2 if found.dtype.kind == "c" else 1)
    relative, absolute = TOLERANCE.get(size, TOLERANCE[8])
    finite = np.abs(expected[np.isfinite(expected)])
    largest = float(finite.max()) if len(finite) else 0.0
    close: NDArray[np.bool_] = np.isclose(
        found, expected, rtol=relative, atol=absolute * largest, equal_nan=True
    )
    return ~close
