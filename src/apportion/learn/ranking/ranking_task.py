"""Ranking the configurations of one program as a task: scores in, an order out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.learn.ranking.measures import agreement, slowdown
from apportion.learn.task import Array, Metric, Task


def _runtimes(example: Any) -> NDArray[np.float64]:
    """(C,) of a stored graph: what its configurations took."""
    runtimes: NDArray[np.float64] = np.asarray(example.truth, np.float64)
    return runtimes


def _ranks(scores: Array) -> NDArray[np.int64]:
    """(C,) the place of each configuration, 0 the fastest; equal scores share a place."""
    ranks: NDArray[np.int64] = np.unique(scores[:, 0], return_inverse=True)[1].astype(np.int64)
    return ranks


def _slowdown(k: int) -> Metric:
    return lambda runtime, ranks: slowdown(runtime, ranks, k)


METRICS: dict[str, Metric] = {
    "opa": lambda runtime, ranks: agreement(runtime, ranks).opa,
    "tau_b": lambda runtime, ranks: agreement(runtime, ranks).tau_b,
    "gamma": lambda runtime, ranks: agreement(runtime, ranks).gamma,
    **{f"slowdown@{k}": _slowdown(k) for k in (1, 5, 10, 100)},
}

config_ranking = Task(
    "config_ranking", "Which of these compiler configurations run fastest?", 1, "list-mle",
    _runtimes, METRICS, "tau_b", _ranks,
)  # fmt: skip
