"""How far the predicted times of each class may be off before any of its jobs has run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.schedule.beliefs import Beliefs
from apportion.schedule.trace import Floats, JobTrace

UNKNOWN_SIGMA = 1.0
"Of log2: how far predictions that claim to be exact are off once a job has shown that they are not."
LEAST_TRUST, MOST_TRUST = 0.05, 0.95
"Bounds of the trust before jobs have run: neither is predictions' use ever ruled out, nor that they are off."
SWEEPS = 30
"Sweeps in which the usual ratio of systems and the level of each class are fitted to each other."


@dataclass(frozen=True, eq=False)
class ClassErrors:
    """What is believed of the errors of predictions, a row for each class, a column for each system."""

    sigma: Floats  # (P, S): of log2: the root mean square over the class's jobs
    deviation: Floats  # (P, S): log2 of what is predicted over what is usual there; NaN: nothing is predicted
    trust: float
    """The part of a deviation that is expected to be true. Where predictions are the truth with a random
    error, that is 1 - (variance of errors) / (variance of deviations). A predictor that already draws
    towards the usual deviates less than its errors would; it is trusted as it is."""


def class_errors(trace: JobTrace, beliefs: Beliefs) -> ClassErrors:
    """As far as can be told from predictions alone."""
    shape = len(trace.programs), len(trace.systems)
    able = np.isfinite(beliefs.seconds)
    counts = _sums(trace, able.astype(float), shape)
    if beliefs.sigma is None:
        return ClassErrors(np.full(shape, UNKNOWN_SIGMA), np.full(shape, np.nan), 1.0)
    sigma = np.sqrt(_sums(trace, np.where(able, beliefs.sigma, 0.0) ** 2, shape) / np.maximum(counts, 1))
    log_times = np.where(able, np.log2(beliefs.seconds), 0.0)
    centred = log_times - (log_times.sum(axis=1) / np.maximum(able.sum(axis=1), 1))[:, None]
    mean = _sums(trace, np.where(able, centred, 0.0), shape) / np.maximum(counts, 1)
    deviation = _deviations(np.where(counts > 0, mean, np.nan))
    return ClassErrors(sigma, deviation, _trust(deviation, sigma))


def _sums(trace: JobTrace, values: Floats, shape: tuple[int, int]) -> Floats:
    columns = [
        np.bincount(trace.program, weights=values[:, system], minlength=shape[0])
        for system in range(shape[1])
    ]
    return np.stack(columns, axis=1)


def _deviations(vectors: Floats) -> Floats:
    """What is left of each class's log times when its own level and that of each system are taken away."""
    there = np.isfinite(vectors)
    left = np.where(there, vectors, 0.0)
    for _ in range(SWEEPS):
        for axis in (1, 0):
            level = left.sum(axis=axis, keepdims=True) / np.maximum(there.sum(axis=axis, keepdims=True), 1)
            left = np.where(there, left - level, 0.0)
    return np.where(there, left, np.nan)


def _trust(deviation: Floats, sigma: Floats) -> float:
    unsure = np.isfinite(deviation) & (sigma > 0)
    classes, systems = (int(unsure.any(axis=axis).sum()) for axis in (1, 0))
    freedom = int(unsure.sum()) - classes - systems + 1
    if freedom < 1:
        return MOST_TRUST
    errors = float((sigma[unsure] ** 2).mean())
    deviations = float((deviation[unsure] ** 2).sum()) / freedom
    if deviations < errors * (1 - 2 * np.sqrt(2 / freedom)):  # less than random errors alone would make
        return MOST_TRUST
    return float(np.clip(1 - errors / deviations, LEAST_TRUST, MOST_TRUST))
