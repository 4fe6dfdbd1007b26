"""KernelModel: forests that tell a kernel's share, with what says how sure and how familiar it is.

It is read and evaluated with NumPy alone. The weights are plain arrays in a `.safetensors` file with
a `.json` beside it that says what they are, how they were made, and their checksum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.described import read_described, write_described
from apportion.data.records import CLASSES
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn.shares.pooled import Pooled, inputs_in

FLOOR = 5.0
"Percent added to the trees' spread: no interval is scaled by nothing where all trees agree."
STRANGE = 0.1
"A kernel stranger than nine in ten of the training kernels are to other applications."
ROUNDED = 1e-5
"Features are kept in 32 bits, so that a kernel that was learned from is not quite at distance 0."
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Scores of rows whose application the forests had not seen: |error| / (spread of the trees + FLOOR)."""

    score: Numbers  # (N,), rising
    weight: Numbers  # (N,), 1 / rows of the application, so that each application counts as one

    def quantile(self, confidence: float) -> float:
        """The score below which a row of a new application lies with this probability.

        The new application itself counts as one more that may score anything, as conformal prediction asks.
        """
        if not 0 < confidence < 1:
            raise InvalidSetting(f"confidence must lie between 0 and 1, not {confidence}")
        below = np.cumsum(self.weight) / (self.weight.sum() + 1.0)
        place = int(np.searchsorted(below, confidence))
        return float(self.score[place]) if place < len(self.score) else math.inf


@dataclass(frozen=True, eq=False)
class Familiarity:
    """How near a kernel is to those learned from, beside how near those are to each other."""

    scaling: Standard
    kernels: NDArray[np.float32]  # (K, F) scaled features of the training kernels
    distance: Numbers  # (K,), rising: of each training kernel to the nearest of another application

    def of(self, features: Numbers) -> float:
        """Of a kernel with features (F,); see `of_each`."""
        return float(self.of_each(features[None, :])[0])

    def of_each(self, features: Numbers) -> Numbers:
        """(N,) of kernels with features (N, F): the part of the training kernels that are at least this far
        from other applications: 1 for a kernel that was learned from, 0 for one farther than any of them."""
        asked, known = self.scaling.apply(features), self._known
        squared = (asked**2).sum(axis=1)[:, None] + self._squared - 2 * asked @ known.T
        nearest = np.sqrt(np.maximum(squared.min(axis=1), 0) / known.shape[1])
        farther = len(self.distance) - np.searchsorted(self.distance, nearest - ROUNDED)
        part: Numbers = farther / len(self.distance)
        return part

    @cached_property
    def _known(self) -> Numbers:
        return self.kernels.astype(np.float64)

    @cached_property
    def _squared(self) -> Numbers:
        return np.asarray((self._known**2).sum(axis=1), np.float64)


def widening(familiarity: Numbers) -> Numbers:
    """(N,): by how much intervals of strange kernels are widened: up to twice, for one farther than any.

    Calibration says what to expect of an application like those that were held out. Trees may agree about a
    kernel that is like none of them, and their agreement is then worth nothing.
    """
    return np.asarray(2 - np.clip(familiarity / STRANGE, 0, 1), np.float64)


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a model says of one launch, in percent of the work."""

    share: float
    low: float
    high: float
    familiarity: float
    share_class: int
    "The class that most trees vote for."


Answers = Callable[[Numbers, Numbers], list[Estimate]]
"Of launches with features of the code (N, F) and inputs (N, I)."


@dataclass(frozen=True, eq=False)
class KernelModel:
    """Everything that prediction needs."""

    name: str
    pool: Pooled
    calibration: ConformalScores
    familiarity: Familiarity
    about: Mapping[str, Any]
    "The experiment that made it."

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns, those of the code first, then those of the inputs."""
        return self.pool.columns

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns that are not of the code."""
        return self.features[len(self.features) - inputs_in(self.features) :]

    @property
    def vectorized(self) -> bool:
        """Whether a compiler made vectors of single values in the IR that it learned from."""
        return bool(self.about.get("vectorized", True))

    def estimate(self, code: Numbers, inputs: Numbers, *, confidence: float) -> Estimate:
        """The share of one launch, and the interval that holds the best one with this probability."""
        return self.estimates(code[None, :], inputs[None, :], confidence=confidence)[0]

    def estimates(self, code: Numbers, inputs: Numbers, *, confidence: float) -> list[Estimate]:
        """The same of many launches: features of the code (N, F) and inputs (N, I)."""
        votes = self.pool.votes(np.hstack([code, inputs]))
        share = np.clip(votes.mean(), 0, 100)
        near = self.familiarity.of_each(code)
        half = self.calibration.quantile(confidence) * (votes.spread() + FLOOR) * widening(near)
        return [
            Estimate(middle, max(0.0, middle - width), min(100.0, middle + width), known, int(voted))
            for middle, width, known, voted in zip(
                share.tolist(), half.tolist(), near.tolist(), votes.nearest(CLASSES).tolist(), strict=True
            )
        ]  # fmt: skip

    def save(self, folder: Path) -> Path:
        """Write the model to `folder`; the file of its weights comes back."""
        arrays: dict[str, Any] = {
            **self.pool.arrays(),
            "score": self.calibration.score,
            "weight": self.calibration.weight,
            "mean": self.familiarity.scaling.mean,
            "deviation": self.familiarity.scaling.deviation,
            "kernels": self.familiarity.kernels,
            "distance": self.familiarity.distance,
        }
        described = {"made_by": dict(self.about), "features": list(self.features)}
        return write_described(folder, self.name, arrays, described)

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """The model that `save` wrote.

        Raises:
            UnreadableFile: a file is missing.
            MalformedInput: the arrays are not those that the description speaks of.
        """
        described, kept = read_described(folder, name)
        return cls(
            described["name"],
            Pooled.of_arrays(described["features"], kept),
            ConformalScores(kept["score"], kept["weight"]),
            Familiarity(Standard(kept["mean"], kept["deviation"]), kept["kernels"], kept["distance"]),
            described["made_by"],
        )


def by_numpy(model: KernelModel, confidence: float) -> Answers:
    """The model's own answers, with intervals of this confidence."""
    return partial(model.estimates, confidence=confidence)
