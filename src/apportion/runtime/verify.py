"""Comparing results of two runs: bytes for integers, a tolerance for floating point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = {2: (1e-2, 1e-3), 4: (1e-4, 1e-6), 8: (1e-9, 1e-12)}
"""Bytes of a floating-point type → (relative tolerance, absolute tolerance per unit of the largest value).

Compilers contract multiply-adds and order sums differently; what is wrong is off by far more.
"""


_VANISHING = {4: float(np.finfo(np.float32).tiny)}
"Below this a device may take a number of a type for 0: OpenCL leaves open what becomes of subnormal singles."

_FINITE_ONLY = ("-cl-fast-relaxed-math", "-cl-finite-math-only")
"Options under which a compiler may give anything for what is not finite."
_RELAXED = ("-cl-fast-relaxed-math", "-cl-unsafe-math-optimizations")
RELAXED = 10
"""How much larger tolerances are under these: OpenCL then allows sines an error of 2^-11, and powers one of
8,192 units in the last place, which sums of values of both signs enlarge."""


@dataclass(frozen=True)
class Exactness:
    """What may be expected of results that two compilers' code computed."""

    computed_in: int = 8
    "Bytes of the narrowest floating-point type that values went through."
    finite_only: bool = False
    "Where a result is not finite, nothing is expected."
    relaxed: bool = False
    "Built with options that trade digits for speed."

    @classmethod
    def of(cls, computed_in: int, options: str) -> Exactness:
        """What holds under these options of a build."""
        return cls(
            computed_in, any(option in options for option in _FINITE_ONLY),
            any(option in options for option in _RELAXED),
        )  # fmt: skip


def difference(found: NDArray[Any], expected: NDArray[Any], exactness: Exactness = Exactness()) -> str | None:
    """What is different, in words; None when the arrays agree."""
    found, expected = found.reshape(-1), expected.reshape(-1)
    wrong = _wrong(found, expected, exactness)
    if not len(wrong):
        return None
    first = int(wrong[0])
    values = f"{found[first]} against {expected[first]}"
    return f"{len(wrong)} of {len(found)} elements differ, first element {first}: {values}"


def _wrong(found: NDArray[Any], expected: NDArray[Any], exactness: Exactness) -> NDArray[np.intp]:
    """Where elements differ; those of structures by what stands in each field."""
    if found.dtype.names and found.dtype == expected.dtype:
        fields = [_wrong(found[name], expected[name], exactness) for name in found.dtype.names]
        return np.unique(np.concatenate(fields))
    # Most elements are the same to the bit; only the others are worth a closer look. A NaN is among those.
    wrong = np.flatnonzero(found != expected)
    if len(wrong) and found.dtype.kind in "fc":
        wrong = wrong[_far(found[wrong], expected[wrong], _largest(expected), exactness)]
    return wrong


def _largest(values: NDArray[Any]) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if len(finite) else 0.0


def _far(
    found: NDArray[Any], expected: NDArray[Any], largest: float, exactness: Exactness
) -> NDArray[np.bool_]:
    size = min(found.dtype.itemsize // (2 if found.dtype.kind == "c" else 1), exactness.computed_in)
    factor = RELAXED if exactness.relaxed else 1
    relative, absolute = (factor * each for each in TOLERANCE.get(size, TOLERANCE[8]))
    least = max(absolute * largest, _VANISHING.get(size, 0.0))
    close: NDArray[np.bool_] = np.isclose(found, expected, rtol=relative, atol=least, equal_nan=True)
    if exactness.finite_only:
        close |= ~(np.isfinite(found) & np.isfinite(expected))
    return ~close
