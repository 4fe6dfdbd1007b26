"""A Gaussian process over points from 0 to 1: smooth, with a reach of its own along every feature.

Kernel: Matérn 5/2, and for each known function of the points (what another GPU took) a linear term. Reaches,
amplitudes and noise are those with the largest posterior: the likelihood of the targets, times wide priors
(log-normal) that keep a dozen measurements from meaning too much.

N points, F features, K known functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_ROOT5 = np.sqrt(5.0)
_ROWS = 512
"Points predicted together: with a hundred measurements their covariances stay in a processor's cache."


@dataclass(frozen=True)
class Prior:
    """What hyperparameters are before anything is measured, and how far (in logarithms) they may be off.

    Chosen on the tuning spaces named on the page of tuning's results, by what the best after 20, 50 and 100
    measurements came to; the result changes little within a factor of two of each.
    """

    reach: float = 1.2
    "The distance, of a feature from 0 to 1, over which targets are alike."
    reach_spread: float = 0.8
    amplitude_spread: float = 0.5
    noise: float = 0.02
    "In deviations of the targets."
    noise_spread: float = 1.0
    known: float = 0.7
    "The part of each known function in the targets, in deviations of both."
    known_spread: float = 1.0


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A process fitted to targets of mean 0 and deviation 1."""

    points: Floats  # (N, F)
    known: Floats  # (N, K)
    parameters: Floats  # (F + 1 + 1 + K,): logarithms of reaches, amplitude, noise, parts of known functions
    inverse: Floats  # (N, N): of the Cholesky factor
    weight: Floats  # (N,)

    @classmethod
    def fit(
        cls, points: Floats, targets: Floats, known: Floats, prior: Prior, *, start: Floats | None = None,
        steps: int = 30,
    ) -> Self:  # fmt: skip
        """The process of these targets.

        Args:
            points: where (N, F).
            targets: what (N,), of mean 0 and deviation 1.
            known: known functions there (N, K).
            start: hyperparameters to start from; the prior's when not given.
            steps: how often hyperparameters are improved.
        """
        features, functions = points.shape[1], known.shape[1]
        middle = np.log([
            *[prior.reach] * features, 1.0, prior.noise, *[prior.known] * functions
        ])  # fmt: skip
        spread = np.array([
            *[prior.reach_spread] * features, prior.amplitude_spread, prior.noise_spread,
            *[prior.known_spread] * functions,
        ])  # fmt: skip
        squares = (points.T[:, :, None] - points.T[:, None, :]) ** 2
        products = known.T[:, :, None] * known.T[:, None, :]
        best: tuple[float, Floats, Floats, Floats] | None = None
        at = np.array(middle if start is None else start)
        step, before = np.full(len(at), 0.2), np.zeros(len(at))
        for _ in range(max(1, steps)):
            try:
                value, slope, inverse, weight = _posterior(at, squares, products, targets, middle, spread)
            except np.linalg.LinAlgError:
                break
            if best is None or value > best[0]:
                best = (value, at.copy(), inverse, weight)
            # Resilient propagation: only the signs of the slope count, so that no step size need be chosen.
            turned = slope * before
            step = np.clip(
                np.where(turned > 0, step * 1.3, np.where(turned < 0, step * 0.5, step)), 1e-3, 1.0
            )
            before = np.where(turned < 0, 0.0, slope)
            at = np.clip(at + np.sign(before) * step, middle - 4 * spread, middle + 4 * spread)
        if best is None:  # targets that no start can explain: the prior with much noise can
            quiet = middle.copy()
            quiet[features + 1] = 0.0
            value, _, inverse, weight = _posterior(quiet, squares, products, targets, middle, spread)
            best = (value, quiet, inverse, weight)
        return cls(points, known, best[1], best[2], best[3])

    def predict(
        self, points: Floats, known: Floats, other: Floats | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Means and deviations (C,) at points (C, F) with known functions (C, K).

        Args:
            points: where.
            known: known functions there.
            other: other targets (N,) of the points of the process; (C,) what they say by the same kernel is
                returned last, and zeros where there are none.
        """
        parts = self._parts
        other_weight = None if other is None else self.inverse.T @ (self.inverse @ other)
        mean, variance, others = (np.zeros(len(points)) for _ in range(3))
        for start in range(0, len(points), _ROWS):
            rows = slice(start, start + _ROWS)
            between = self._between(points[rows], known[rows])
            own = np.exp(2 * self._amplitude) + (known[rows] ** 2 @ np.exp(2 * parts) if len(parts) else 0.0)
            variance[rows] = own - ((between @ self.inverse.T) ** 2).sum(axis=1)
            mean[rows] = between @ self.weight
            if other_weight is not None:
                others[rows] = between @ other_weight
        return mean, np.sqrt(np.maximum(variance, 1e-10)), others

    def left_out(self) -> Floats:
        """(N,) what the other points say of the target of each."""
        precision = self.inverse.T @ self.inverse
        targets = np.linalg.solve(precision, self.weight)
        found: Floats = targets - self.weight / np.diag(precision)
        return found

    @property
    def _amplitude(self) -> float:
        return float(self.parameters[self.points.shape[1]])

    @property
    def _parts(self) -> Floats:
        return self.parameters[self.points.shape[1] + 2 :]

    def _between(self, points: Floats, known: Floats) -> Floats:
        """(C, N) covariances."""
        reach = np.exp(self.parameters[: self.points.shape[1]])
        a, b = points / reach, self.points / reach
        square = np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2 * a @ b.T, 0)
        covariance: Floats = np.exp(2 * self._amplitude) * _matern(square)
        if len(self._parts):
            covariance += (known * np.exp(2 * self._parts)) @ self.known.T
        return covariance


def _matern(square: Floats) -> Floats:
    far = np.sqrt(square)
    value: Floats = (1 + _ROOT5 * far + 5 / 3 * square) * np.exp(-_ROOT5 * far)
    return value


def _posterior(
    at: Floats, squares: Floats, products: Floats, targets: Floats, middle: Floats, spread: Floats
) -> tuple[float, Floats, Floats, Floats]:
    """The log posterior of hyperparameters and its slope; the inverse Cholesky factor, and the weights."""
    features, count = len(squares), len(targets)
    nearness = np.exp(-2 * at[:features])
    square = np.tensordot(nearness, squares, 1)
    far = np.sqrt(square + 1e-12)
    amplitude, noise = np.exp(2 * at[features]), np.exp(2 * at[features + 1])
    parts = np.exp(2 * at[features + 2 :])
    falling = np.exp(-_ROOT5 * far)
    smooth = amplitude * (1 + _ROOT5 * far + 5 / 3 * square) * falling
    whole = smooth + (noise + 1e-8) * np.eye(count)
    if len(parts):
        whole += np.tensordot(parts, products, 1)
    factor = np.linalg.cholesky(whole)
    inverse = np.linalg.inv(factor)
    precision = inverse.T @ inverse
    weight = precision @ targets
    value = -0.5 * float(targets @ weight) - float(np.log(np.diag(factor)).sum())
    gain = np.outer(weight, weight) - precision
    slope = np.empty_like(at)
    along = gain * (amplitude * 5 / 6 * (1 + _ROOT5 * far) * falling)
    slope[:features] = np.tensordot(squares, along, ([1, 2], [0, 1])) * nearness
    slope[features] = float((gain * smooth).sum())
    slope[features + 1] = float(np.trace(gain)) * noise
    if len(parts):
        slope[features + 2 :] = np.tensordot(products, gain, ([1, 2], [0, 1])) * parts
    away = (at - middle) / spread
    return value - 0.5 * float(away @ away), slope - away / spread, inverse, weight


def log_expected_improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """The logarithm of how much below the best a normal quantity is expected to come; far tails included."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * np.maximum(z, -6.0) ** 2) / np.sqrt(2 * np.pi)
    near = np.log(np.maximum(z * _normal(np.maximum(z, -6.0)) + density, 1e-300))
    # E[improvement] → φ(z) / z² for z → −∞; the 3 makes both meet at −4 within a percent.
    tail = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(z**2 + 3)
    found: Floats = np.log(deviation) + np.where(z > -4, near, tail)
    return found


def _normal(z: Floats) -> Any:
    """The distribution function of the normal, within 1e-7 (Abramowitz and Stegun, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * series
    return np.where(z > 0, 1 - upper, upper)
