"""Numbers in words: estimates with their intervals, times with a unit that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class WithInterval(Protocol):
    """A value, and the range that is likely to hold it."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def with_interval(found: WithInterval | Mapping[str, float] | Sequence[float], form: str = ".3f") -> str:
    """`1.02 (1.00 to 1.04)`; the value alone where the interval is a point.

    Args:
        found: value, low and high: an object or a mapping that names them, or the three in this order.
        form: how each is written, as `format` understands it: `.2f`, `.0%`.
    """
    if isinstance(found, Mapping):
        found = found["value"], found["low"], found["high"]
    elif not isinstance(found, Sequence):
        found = found.value, found.low, found.high
    value, low, high = (format(number, form) for number in found)
    return value if low == high else f"{value} ({low} to {high})"


def in_time(seconds: float) -> str:
    """`1.5 ms`: three digits and the unit that fits, from nanoseconds to days."""
    if seconds < 60:
        for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
            if seconds >= size:
                return f"{seconds / size:.3g} {unit}"
        return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"
    for unit, size in (("d", 86400.0), ("h", 3600.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.1f} min"
