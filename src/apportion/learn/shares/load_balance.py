"""Load balancing: which share of a kernel's work the CPU should take so that both devices end together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.records import CLASSES
from apportion.learn.shares.device_mapping import agreement, compared
from apportion.learn.task import Array, Task


def classes_of(shares: Array) -> NDArray[np.int64]:
    """(N,) the number in `CLASSES` of the nearest class; the lower of two equally near."""
    distance = np.abs(np.asarray(shares, np.float64)[:, None] - np.array(CLASSES))
    nearest: NDArray[np.int64] = distance.argmin(axis=1)
    return nearest


def mean_absolute_error(truth: Array, shares: Array) -> float:
    """In percent of the work."""
    return float(np.abs(np.asarray(truth, np.float64) - shares).mean())


def root_mean_squared_error(truth: Array, shares: Array) -> float:
    """In percent of the work."""
    return float(np.sqrt(np.mean((np.asarray(truth, np.float64) - shares) ** 2)))


def sharing_costs(shares: Array, cpu_time: Array, gpu_time: Array) -> dict[str, float]:
    """What shares (N,) in percent are worth, under the names of `device_mapping.costs`.

    Under the model behind the labels: each device's time goes with its share, and the later one counts. What
    sharing itself costs is not in it. The oracle knows the best share.
    """
    part = np.asarray(shares, np.float64) / 100
    together = np.maximum(part * cpu_time, (1 - part) * gpu_time)
    return compared(together, cpu_time * gpu_time / (cpu_time + gpu_time), cpu_time, gpu_time)


def _class(example: Any) -> NDArray[np.uint8]:
    return np.array([CLASSES.index(example.share_class)], np.uint8)


def _likeliest(scores: Array) -> NDArray[np.int64]:
    likeliest: NDArray[np.int64] = scores.argmax(axis=1)
    return likeliest


load_balance = Task(
    "load-balance", "Which share of the work should the CPU take?", len(CLASSES), "cross-entropy",
    _class, {"accuracy": agreement}, "accuracy", _likeliest,
)  # fmt: skip
