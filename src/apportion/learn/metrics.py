"""Measures of success, with intervals that say how sure they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting

Counts = NDArray[np.int64]
"(…, 4): true positives, false positives, false negatives, true negatives."


@dataclass(frozen=True)
class Interval:
    """An estimate and the range that holds the true value in 95 of 100 repetitions."""

    value: float
    low: float
    high: float

    @classmethod
    def resampled(cls, value: float, drawn: Sequence[float] | NDArray[np.float64]) -> Interval:
        """A value, with the middle 95 % of what it was on resampled data."""
        low, high = np.quantile(drawn, [0.025, 0.975])
        return cls(float(value), float(low), float(high))


def counts(truth: NDArray[Any], decided: NDArray[Any], start: NDArray[np.int64] | None = None) -> Counts:
    """How often each answer was right and wrong: (4,) over all, or (B, 4) over runs that begin at `start`."""
    true, said = np.asarray(truth, bool), np.asarray(decided, bool)
    if true.shape != said.shape:
        raise InvalidSetting(f"{said.shape} decisions cannot be compared with {true.shape} truths")
    cells = np.stack([true & said, ~true & said, true & ~said, ~true & ~said], axis=-1)
    summed: Counts = (
        cells.sum(axis=0, dtype=np.int64)
        if start is None
        else np.add.reduceat(cells, start, axis=0, dtype=np.int64)
    )
    return summed


def accuracy(c: Counts) -> float:
    """Share of right answers."""
    return _share(c[0] + c[3], c.sum())


def precision(c: Counts) -> float:
    """Share of what was called positive that is; 0 where nothing was, as the paper's tooling has it."""
    return _share(c[0], c[0] + c[1])


def recall(c: Counts) -> float:
    """Share of the positive that was called so; 0 where nothing is."""
    return _share(c[0], c[0] + c[2])


def f1(c: Counts) -> float:
    """Harmonic mean of precision and recall of the positive class, over all nodes together."""
    return _share(2 * c[0], 2 * c[0] + c[1] + c[2])


BINARY: dict[str, Callable[[Counts], float]] = {
    "f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy
}  # fmt: skip


def bootstrap(
    c: Counts,
    measure: Callable[[Counts], float],
    *,
    groups: NDArray[np.integer[Any]] | None = None,
    samples: int = 1000,
    seed: int = 0,
) -> Interval:
    """`measure` over all rows of counts (B, 4), with the middle 95 % of what resampled rows give.

    Args:
        groups: rows that belong together (the instances of one graph) are drawn together.
    """
    if len(c) == 0:
        raise InvalidSetting("There is nothing to measure: no row of counts was given")
    if groups is not None:
        _, member = np.unique(groups, return_inverse=True)
        joined = np.zeros((int(member.max()) + 1, 4), np.int64)
        np.add.at(joined, member, c)
        c = joined
    random = np.random.default_rng(seed)
    drawn = [measure(c[random.integers(0, len(c), len(c))].sum(axis=0)) for _ in range(samples)]
    return Interval.resampled(measure(c.sum(axis=0)), drawn)


def over_seeds(values: Sequence[float]) -> Interval:
    """The mean of a measure over runs that differ in their seed, with its 95 % interval (Student's t).

    One run alone has an interval of no width: it says nothing about the others.
    """
    if not values:
        raise InvalidSetting("There is nothing to average: no run was given")
    n, mean = len(values), float(np.mean(values))
    if n == 1:
        return Interval(mean, mean, mean)
    half = _student_t(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half)


def over_groups(
    values: NDArray[np.float64],
    groups: NDArray[Any],
    *,
    alike: bool = False,
    samples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The mean of values (N,), with the middle 95 % of what resampled groups give.

    Args:
        groups: (N,) rows that belong together are drawn together.
        alike: each group counts once, whatever its rows; otherwise each row does.
    """
    _, member, count = np.unique(groups, return_inverse=True, return_counts=True)
    total: NDArray[np.float64] = np.bincount(member, values).astype(np.float64)
    size = np.ones(len(count)) if alike else count.astype(np.float64)
    total = total / count if alike else total
    drawn = np.random.default_rng(seed).integers(0, len(count), (samples, len(count)))
    return Interval.resampled(total.sum() / size.sum(), total[drawn].sum(axis=1) / size[drawn].sum(axis=1))


def _share(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if whole else 0.0


def _student_t(freedom: int) -> float:
    """The 97.5 % point of Student's t."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
    return table[freedom - 1] if freedom <= len(table) else 1.96 + 2.4 / freedom
