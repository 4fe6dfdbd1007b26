"""Learners of vectors: rows of features in, a number for each system out.

Each is a function `(settings, rows, truth, seed, calibration) -> VectorModel`. Trees are those of `trees`
with several outputs; networks live in `vae`, which alone needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn import row_models
from apportion.settings import convert

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ProfiledRows:
    """Rows without labels, by where they were profiled: what a network may look at before it learns."""

    cpu: Numbers  # (M, F): profiled on CPUs
    every: Numbers  # (M, F): profiled on any system


class VectorModel(Protocol):
    """A fitted learner."""

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""


@dataclass(frozen=True, eq=False)
class Ridge:
    """Lines in scaled features; the answer for one set of outputs never depends on the others."""

    scaling: Standard
    weights: Numbers  # (F, S)
    mean: Numbers  # (S,)
    inverse: Numbers  # (F, F): of the regularised covariance of the scaled training rows

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""
        said: Numbers = self.scaling.apply(rows) @ self.weights + self.mean
        return said

    def spread(self, rows: Numbers) -> Numbers:
        """(N,): how much wider than the noise an error is expected to be, at least 1 (leverage)."""
        scaled = self.scaling.apply(rows)
        return np.asarray(np.sqrt(1 + np.einsum("nf,fg,ng->n", scaled, self.inverse, scaled)), np.float64)


@dataclass(frozen=True)
class RidgeSettings:
    """How much the weights are held back."""

    strength: float = 100.0

    def __post_init__(self) -> None:
        if self.strength <= 0:
            raise InvalidSetting(f"strength must be positive, not {self.strength}")


def ridge(
    settings: Mapping[str, Any],
    rows: Numbers,
    truth: Numbers,
    *,
    seed: int = 0,
    calibration: ProfiledRows | None = None,
) -> Ridge:
    """Least squares with the weights held back."""
    strength = convert(RidgeSettings, dict(settings), source="ridge").strength
    scaling = Standard.fit(rows)
    scaled, mean = scaling.apply(rows), truth.mean(axis=0)
    inverse = np.asarray(np.linalg.inv(scaled.T @ scaled + strength * np.eye(rows.shape[1])), np.float64)
    return Ridge(scaling, inverse @ scaled.T @ (truth - mean), mean, inverse)


@dataclass(frozen=True, eq=False)
class Stacked:
    """A learner of one number for each output, or for all at once; a constant output needs none."""

    parts: tuple[Any, ...]

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""
        said = [np.asarray(part.predict(rows), np.float64) for part in self.parts]
        return said[0] if said[0].ndim == 2 else np.stack(said, axis=1)


def _trees(name: str) -> Any:
    def fit(
        settings: Mapping[str, Any],
        rows: Numbers,
        truth: Numbers,
        *,
        seed: int = 0,
        calibration: ProfiledRows | None = None,
    ) -> Stacked:
        grow = row_models.load(name)
        if name == "boosting":  # one number at a time
            return Stacked(tuple(grow(settings, rows, column, seed=seed) for column in truth.T))
        one = truth.shape[1] == 1
        return Stacked((grow(settings, rows, truth[:, 0] if one else truth, seed=seed),))

    return fit


extra_trees, random_forest, boosting = _trees("extra-trees"), _trees("random-forest"), _trees("boosting")


@dataclass(frozen=True, eq=False)
class MeanVector:
    """The mean of the training vectors."""

    mean: Numbers  # (S,)

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""
        return np.tile(self.mean, (len(rows), 1))


def constant(
    settings: Mapping[str, Any],
    rows: Numbers,
    truth: Numbers,
    *,
    seed: int = 0,
    calibration: ProfiledRows | None = None,
) -> MeanVector:
    """'Always the fastest on average', as a vector."""
    return MeanVector(truth.mean(axis=0))
