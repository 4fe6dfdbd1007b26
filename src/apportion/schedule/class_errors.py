"""How far the predicted times of each class may be off before any of its jobs has run."""

from __future__ import annotations

import numpy as np

from apportion.schedule.beliefs import Beliefs
from apportion.schedule.trace import Floats, JobTrace

UNKNOWN_SIGMA = 1.0
"Of log2: how far predictions that claim to be exact are off once a job has shown that they are not."


def class_sigmas(trace: JobTrace, beliefs: Beliefs) -> Floats:  # (P, S)
    """The sigma of each class on each system: the root mean square over its jobs."""
    shape = len(trace.programs), len(trace.systems)
    if beliefs.sigma is None:
        return np.full(shape, UNKNOWN_SIGMA)
    able = np.isfinite(beliefs.seconds)
    squares = np.where(able, beliefs.sigma, 0.0) ** 2
    sums, counts = np.empty(shape), np.empty(shape)
    for system in range(shape[1]):
        sums[:, system] = np.bincount(trace.program, weights=squares[:, system], minlength=shape[0])
        counts[:, system] = np.bincount(trace.program, weights=able[:, system], minlength=shape[0])
    return np.sqrt(sums / np.maximum(counts, 1))
