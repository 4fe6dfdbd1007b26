"""The five data-flow analyses as questions about every node of a graph, asked from a root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.learn.metrics import BINARY, Counts, counts
from apportion.learn.task import Metric, Task


def _metric(measure: Callable[[Counts], float]) -> Metric:
    return lambda truth, decided: measure(counts(truth, decided))


def _labels(example: Any) -> NDArray[np.uint8]:
    labels: NDArray[np.uint8] = np.asarray(example.labels, np.uint8)
    return labels


def _positive(scores: NDArray[Any]) -> NDArray[np.bool_]:
    """(N,): which nodes score higher for yes than for no."""
    return scores[:, 1] > scores[:, 0]


def _task(name: str, question: str) -> Task[NDArray[np.bool_]]:
    metrics = {key: _metric(measure) for key, measure in BINARY.items()}
    return Task(name, question, 2, "cross-entropy", _labels, metrics, "f1", _positive)


reachability = _task("reachability", "Which instructions can be reached from this one?")
dominance = _task("dominance", "Which instructions does this one dominate?")
datadep = _task("datadep", "Which instructions does this variable's value depend on?")
liveness = _task("liveness", "Which values are live after this instruction?")
subexpressions = _task("subexpressions", "Which instructions compute the same expression as this one?")
