"""A system known from a few runs: which of the known systems is it like, and how does it differ?

The new system's log time is that of a known system, plus a constant, plus a difference that is smooth in two
ways: in how the other systems differ on the run (a low-rank factor model over systems), and in the run's
counters. Which known system, and how large each difference is, is not decided but averaged over, each choice
weighted by how likely it makes the measured runs. Everything is Gaussian: every weight has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting

Numbers = NDArray[np.float64]
FACTOR_VARIANCES = (0.0, 0.01, 0.03, 0.1)
"How much the new system may lean to other systems than the one it is like."
COUNTER_VARIANCES = (0.0, 0.1, 0.3)
"How much of the difference may follow the counters; log2 of time, squared."
NOISE_VARIANCES = (0.15, 0.4, 1.0)
"What is left of a run's difference; times within a factor of 1.3 to 2."
CONSTANT_VARIANCE = 1.0
"Of how much faster the new system is than the one it is like: mostly within a factor of 2 either way."


@dataclass(frozen=True, eq=False)
class TimeEstimate:
    """Log2 times of runs on the new system."""

    mean: Numbers  # (M,)
    sigma: Numbers  # (M,)
    likeness: Numbers  # (S + 1,): the weight of each known system, and last that of their mean


@dataclass(frozen=True, eq=False)
class Known:
    """Runs on the known systems: measured, or predicted where they were not."""

    log_times: Numbers  # (N, S)
    features: Numbers  # (N, F)

    def __post_init__(self) -> None:
        if len(self.log_times) != len(self.features) or self.log_times.shape[1] < 2:
            raise InvalidSetting("Known runs need features, and times on two systems at least")


def estimate(
    measured: Known, log_times: Numbers, asked: Known, *, background: Known | None = None
) -> TimeEstimate:
    """What `asked` runs take on a system that took `log_times` (K,) for the `measured` ones.

    Args:
        background: runs that say what is usual: the scales of features, and each system's mean difference; by
            default the measured ones.

    Raises:
        InvalidSetting: fewer than two measured runs.
    """
    if len(log_times) < 2 or len(log_times) != len(measured.log_times):
        raise InvalidSetting(f"A system needs two measured runs at least, not {len(log_times)}")
    usual = measured if background is None else background
    scaling, centre = Standard.fit(usual.features), _differences(usual.log_times).mean(axis=0)
    here, there = (_differences(known.log_times) - centre for known in (measured, asked))
    near, far = scaling.apply(measured.features), scaling.apply(asked.features)
    factor = here @ here.T, there @ here.T, (there**2).sum(axis=1)
    counter = _likeness(near, near), _likeness(far, near)
    base, base_there = (_with_mean(known.log_times) for known in (measured, asked))
    difference = log_times[:, None] - base
    identity, likelihood, means, variances = np.eye(len(log_times)), [], [], []
    for lean, follow, noise in product(FACTOR_VARIANCES, COUNTER_VARIANCES, NOISE_VARIANCES):
        inside = lean * factor[0] + follow * counter[0] + CONSTANT_VARIANCE + noise * identity
        across = lean * factor[1] + follow * counter[1] + CONSTANT_VARIANCE
        root = np.linalg.cholesky(inside)
        solved = np.linalg.solve(root.T, np.linalg.solve(root, difference))
        likelihood.append(-0.5 * (difference * solved).sum(axis=0) - np.log(np.diag(root)).sum())
        means.append(base_there + across @ solved)
        own = lean * factor[2] + follow + CONSTANT_VARIANCE + noise
        variances.append(own - (np.linalg.solve(root, across.T) ** 2).sum(axis=0))
    log_weight = np.array(likelihood)  # (G, S + 1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    stacked = np.array(means)  # (G, M, S + 1)
    mean = np.einsum("gs,gms->m", weight, stacked)
    spread = np.einsum("gs,gms->m", weight, (stacked - mean[None, :, None]) ** 2)
    within = np.einsum("g,gm->m", weight.sum(axis=1), np.array(variances))
    return TimeEstimate(mean, np.sqrt(spread + within), weight.sum(axis=0))


def nearest(
    measured: Numbers, log_times: Numbers, asked: Numbers, *, strength: float | None = None
) -> Numbers:
    """(M,): what the known system says that is nearest on the measured runs, moved by the mean difference.

    Args:
        measured: (K, S) log times of the measured runs on the known systems; `asked` (M, S) of the others.
        strength: of a ridge from the other systems' differences to what is left; None for none.
    """
    difference = log_times[:, None] - measured
    offset = difference.mean(axis=0)
    best = int(((difference - offset) ** 2).mean(axis=0).argmin())
    said: Numbers = asked[:, best] + offset[best]
    if strength is None:
        return said
    inside, outside = (np.delete(times - times[:, [best]], best, axis=1) for times in (measured, asked))
    centre = inside.mean(axis=0)
    covariance = (inside - centre).T @ (inside - centre) + strength * np.eye(inside.shape[1])
    weights = np.linalg.solve(covariance, (inside - centre).T @ (difference[:, best] - offset[best]))
    moved: Numbers = said + (outside - centre) @ weights
    return moved


def _differences(log_times: Numbers) -> Numbers:
    """(N, S): of each system to the mean of all, run by run."""
    return np.asarray(log_times - log_times.mean(axis=1, keepdims=True), np.float64)


def _with_mean(log_times: Numbers) -> Numbers:
    return np.hstack([log_times, log_times.mean(axis=1, keepdims=True)])


def _likeness(a: Numbers, b: Numbers) -> Numbers:
    """(len(a), len(b)): 1 for equal counters, less the farther they lie apart."""
    distance = ((a[:, None, :] - b[None, :, :]) ** 2).mean(axis=2)
    return np.asarray(np.exp(-distance / 2), np.float64)
