"""Relative performance: how fast a program is on each of several systems beside the others, and their order.

Times are in their base-2 logarithm throughout, (N, S): runs × systems. A *vector* is one row of what
`vector_of` makes of them; it is derived whenever it is asked for and never stored.

`centred`      log2 time less its mean over the systems (the centred log-ratio): the default. Errors mean the
               same on every system, and systems can be added or left out.
`slowest`      time / time on the slowest system, in (0, 1]: the scale of Nichols et al., on which R² and
               MAE are given.
a system       time / time on that system. Its own column is 1 everywhere, which flatters averages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.metrics import Interval

Numbers = NDArray[np.float64]
CENTRED, SLOWEST = "centred", "slowest"
MEASURES = ("r2", "mae", "order", "kendall", "top1", "regret")
"""On the `slowest` scale: R² averaged over the systems, mean absolute error. Of decisions: share of runs
whose systems come in exactly the right order, Kendall's tau, share whose fastest system is the one named,
and how much longer runs take on that one than on the best (geometric mean)."""


def vector_of(log_times: Numbers, target: str = CENTRED, systems: Sequence[str] = ()) -> Numbers:
    """(N, S): the relative performance vectors of times.

    Args:
        log_times: (N, S) base-2 logarithms.
        target: `centred`, `slowest`, or one of `systems`.

    Raises:
        UnknownName: no such target.
    """
    if target == CENTRED:
        return np.asarray(log_times - log_times.mean(axis=1, keepdims=True), np.float64)
    if target == SLOWEST:
        return np.asarray(2.0 ** (log_times - log_times.max(axis=1, keepdims=True)), np.float64)
    if target not in systems:
        raise UnknownName("target", target, (CENTRED, SLOWEST, *systems))
    return np.asarray(2.0 ** (log_times - log_times[:, [list(systems).index(target)]]), np.float64)


def log_times_of(vectors: Numbers, target: str = CENTRED) -> Numbers:
    """(N, S): log times, up to a constant in each row, of vectors that a model predicted.

    A ratio that is not positive, which a regressor may well say, counts as a thousandth.
    """
    return vectors if target == CENTRED else np.log2(np.maximum(vectors, 1e-3))


def order_of(log_times: Numbers) -> NDArray[np.int64]:
    """(N, S): numbers of systems, fastest first; equally fast ones in the systems' own order."""
    order: NDArray[np.int64] = np.argsort(log_times, axis=1, kind="stable")
    return order


def r_squared(truth: Numbers, said: Numbers) -> float:
    """The part of each system's variance that is explained, averaged over systems that vary at all."""
    total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    left = ((truth - said) ** 2).sum(axis=0)
    varies = total > 1e-12
    return float(np.mean(1 - left[varies] / total[varies])) if varies.any() else 0.0


def kendall(truth: Numbers, said: Numbers) -> float:
    """Kendall's tau of the systems' times, averaged over runs; a pair that ties on either side counts 0."""
    first, second = np.triu_indices(truth.shape[1], 1)
    agreed = np.sign(truth[:, first] - truth[:, second]) * np.sign(said[:, first] - said[:, second])
    return float(agreed.mean())


def measures_of(truth: Numbers, said: Numbers) -> dict[str, float]:
    """`MEASURES` of predicted log times (N, S), each right up to a constant in its row."""
    if truth.shape != said.shape or truth.ndim != 2 or len(truth) == 0:
        raise InvalidSetting(f"{said.shape} predictions cannot be compared with {truth.shape} times")
    true_scale, said_scale = vector_of(truth, SLOWEST), vector_of(said, SLOWEST)
    chosen, rows = said.argmin(axis=1), np.arange(len(truth))
    lost = truth[rows, chosen] - truth.min(axis=1)
    return {
        "r2": r_squared(true_scale, said_scale),
        "mae": float(np.abs(true_scale - said_scale).mean()),
        "order": float((order_of(truth) == order_of(said)).all(axis=1).mean()),
        "kendall": kendall(truth, said),
        "top1": float((lost == 0).mean()),
        "regret": float(2 ** lost.mean()),
    }


def bootstrap_groups(
    groups: Sequence[str],
    measure: Callable[[NDArray[np.int64]], dict[str, float]],
    *,
    samples: int = 400,
    seed: int = 0,
) -> dict[str, Interval]:
    """Each of `measure`'s numbers over all rows, with the middle 95 % of what resampled groups give.

    Rows of one application share their fate, so applications are drawn, not rows.
    """
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    rows_of = [np.flatnonzero(member == group) for group in range(int(member.max()) + 1)]
    random = np.random.default_rng(seed)
    drawn = [
        measure(np.concatenate([rows_of[i] for i in random.integers(0, len(rows_of), len(rows_of))]))
        for _ in range(samples)
    ]
    found = measure(np.arange(len(member)))
    return {name: Interval.resampled(value, [one[name] for one in drawn]) for name, value in found.items()}


@dataclass(frozen=True, eq=False)
class Roc:
    """Figure 5 of Nichols et al.: whether a run has the common order, told by a score."""

    order: tuple[int, ...]
    "The order that most runs have: numbers of systems, fastest first."
    prior: float
    "The share of runs that have it."
    false_positive: Numbers  # (P,), rising from 0 to 1
    true_positive: Numbers  # (P,)
    area: float


def common_order(truth: Numbers) -> tuple[int, ...]:
    """The order that most runs have; the first one of those equally common."""
    orders, counts = np.unique(order_of(truth), axis=0, return_counts=True)
    return tuple(int(system) for system in orders[int(counts.argmax())])


def roc(truth: Numbers, said: Numbers) -> Roc:
    """How well predictions tell the runs in the common order from the others.

    The score of a run is the smallest step, in log time, between neighbours of the common order as predicted:
    positive exactly when the prediction has that order, and larger the more clearly so.
    """
    order = common_order(truth)
    positive = (order_of(truth) == np.array(order)).all(axis=1)
    score = np.diff(said[:, list(order)], axis=1).min(axis=1)
    prior = float(positive.mean())
    if positive.all() or not positive.any():
        both = np.array([0.0, 1.0])
        return Roc(order, prior, both, both, 0.5)
    levels = np.unique(score)[::-1]
    said_so = score[None, :] >= levels[:, None]
    true_rate = np.concatenate([[0.0], (said_so & positive).sum(axis=1) / positive.sum()])
    false_rate = np.concatenate([[0.0], (said_so & ~positive).sum(axis=1) / (~positive).sum()])
    area = float((np.diff(false_rate) * (true_rate[1:] + true_rate[:-1]) / 2).sum())
    return Roc(order, prior, false_rate, true_rate, area)


def as_json(measures: dict[str, Interval]) -> dict[str, Any]:
    """Intervals as plain numbers."""
    return {name: [round(end, 4) for end in (i.value, i.low, i.high)] for name, i in measures.items()}
