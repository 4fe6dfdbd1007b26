"""Configurations as points: numbers on the scale on which times change evenly, other values as directions.

A parameter whose values span a factor of four or more (a tile of 8 to 256) is taken by its logarithm. Of
integers that are not all powers of two, a column besides says how often two divides them: a block of 96
threads behaves like one of 32 in how it fills the hardware. Values that are no numbers are one-hot, and a
parameter that means nothing in a configuration (None) has a column that says so.

C configurations, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.measure.space import Configuration, Range, Space

_SPAN = 4.0
"A largest over a smallest value from which on a parameter is taken by its logarithm."
_MOST_HALVINGS = 10
_FEWEST_FOR_HALVINGS = 5
"Values from which on how often two divides them is worth a column."


@dataclass(frozen=True)
class Column:
    """One feature: what it makes of the value of a parameter, and the two ends of what it makes."""

    parameter: str
    of: Callable[[Any], float]
    low: float
    high: float
    absent: float
    "Its value, from 0 to 1, where the parameter means nothing."

    def values(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """(C,) from 0 to 1."""
        width = (self.high - self.low) or 1.0
        return np.array([
            self.absent if one[self.parameter] is None else (self.of(one[self.parameter]) - self.low) / width
            for one in configurations
        ])  # fmt: skip


@dataclass(frozen=True)
class Encoding:
    """The features of a space."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, space: Space) -> Encoding:
        """The features that the parameters of a space ask for; a parameter with one value has none."""
        columns: list[Column] = []
        for name, values in space.values.items():
            columns += _columns(name, values, conditional=name in space.conditions)
        return cls(tuple(columns))

    def points(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """(C, F), each feature from 0 to 1."""
        if not self.columns:
            return np.zeros((len(configurations), 1))
        return np.stack([column.values(configurations) for column in self.columns], axis=1)


def _columns(name: str, values: Sequence[Any] | Range, *, conditional: bool) -> list[Column]:
    if isinstance(values, Range):
        listed: list[Any] = [values.low, values.high]
        if values.whole and values.count > 2:
            listed = [values.value(place) for place in range(min(int(values.count), 4096))]
        by_log = values.log or _spans(listed)
    else:
        listed = [value for value in values if value is not None]
        conditional = conditional or len(listed) < len(values)
        by_log = _spans(listed)
    columns = [Column(name, _is_there, 0.0, 1.0, 0.0)] if conditional else []
    if not all(isinstance(value, int | float | np.number) for value in listed):
        return columns + [Column(name, _Equals(value), 0.0, np.sqrt(2.0), 0.0) for value in listed]
    if len(listed) < 2:
        return columns
    scale: Callable[[Any], float] = _log2 if by_log else float
    ends = [scale(value) for value in listed]
    columns.append(Column(name, scale, min(ends), max(ends), 0.5))
    halvings = _halvings_of(listed)
    if halvings is not None:
        columns.append(Column(name, _halvings, min(halvings), max(halvings), 0.5))
    return columns


def _spans(values: Sequence[Any]) -> bool:
    numbers = [value for value in values if isinstance(value, int | float | np.number)]
    if len(numbers) < len(values) or len(values) < 3 or min(numbers) <= 0:
        return False
    return bool(max(numbers) / min(numbers) >= _SPAN)


def _halvings_of(values: Sequence[Any]) -> list[float] | None:
    """How often two divides each; None where that says nothing that the value itself does not."""
    whole = all(float(value).is_integer() and value > 0 for value in values)
    if not whole or len(values) < _FEWEST_FOR_HALVINGS:
        return None
    if all(int(value) & (int(value) - 1) == 0 for value in values):
        return None
    found = [_halvings(value) for value in values]
    return found if max(found) > min(found) else None


def _halvings(value: Any) -> float:
    number = int(value)
    return float(min((number & -number).bit_length() - 1, _MOST_HALVINGS))


def _log2(value: Any) -> float:
    return float(np.log2(value))


def _is_there(value: Any) -> float:
    return 1.0


@dataclass(frozen=True)
class _Equals:
    """Whether a value is this one."""

    value: Any

    def __call__(self, other: Any) -> float:
        return float(repr(other) == repr(self.value))
