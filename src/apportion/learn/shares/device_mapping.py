"""Device mapping: which of two devices runs a kernel faster, and what a wrong answer costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.learn.task import Array, Task

DEVICES = ("cpu", "gpu")
"The device of each output."


def _faster(example: Any) -> NDArray[np.uint8]:
    return np.array([DEVICES.index(example.device)], np.uint8)


def _likelier(scores: Array) -> NDArray[np.int64]:
    """(N,) the device with the higher score; the CPU when they are equal."""
    return (scores[:, 1] > scores[:, 0]).astype(np.int64)


def agreement(truth: Array, decided: Array) -> float:
    """The share of decisions that are right."""
    return float(np.mean(np.asarray(truth) == np.asarray(decided)))


def costs(to_gpu: Array, cpu_time: Array, gpu_time: Array) -> dict[str, float]:
    """What decisions (N,) are worth: speed-ups as geometric means, and the time lost against the oracle.

    `over_cpu`, `over_gpu`: how much faster than always that device. `of_oracle`: the part of the best
    possible speed that is reached. `regret`: time over all rows beyond that of the oracle, as a part of it.
    """
    return compared(np.where(to_gpu, gpu_time, cpu_time), np.minimum(cpu_time, gpu_time), cpu_time, gpu_time)


def compared(taken: Array, best: Array, cpu_time: Array, gpu_time: Array) -> dict[str, float]:
    """Times that were taken (N,), beside the best possible and those of each device alone."""
    return {
        "over_cpu": _geometric(cpu_time / taken),
        "over_gpu": _geometric(gpu_time / taken),
        "of_oracle": _geometric(best / taken),
        "regret": float(taken.sum() / best.sum() - 1),
    }


def _geometric(ratios: Array) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


device_mapping = Task(
    "device-mapping", "Which device runs this kernel faster?", len(DEVICES), "cross-entropy",
    _faster, {"accuracy": agreement}, "accuracy", _likelier,
)  # fmt: skip
