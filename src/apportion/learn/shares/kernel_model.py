"""KernelModel: forests that tell a kernel's share, with what says how sure and how familiar it is.

It is read and evaluated with NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_artifact, write_artifact
from apportion.data.records import CLASSES
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.base import check_confidence
from apportion.learn.shares.kernel_query import AttributedPredictor, KernelQuery, KnownKernel, ShareAnswer
from apportion.learn.shares.pooled import Pooled, inputs_in
from apportion.program.kernel.features import RANGE_INPUTS, inputs_of

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
    names: tuple[str, ...] = ()
    "Of the training kernels, in the order of `kernels`; none where they were not kept."

    def __post_init__(self) -> None:
        if self.names and len(self.names) != len(self.kernels):
            raise InvalidSetting(f"{len(self.kernels)} known kernels cannot have {len(self.names)} names")

    def nearest(self, features: Numbers, count: int = 3) -> tuple[KnownKernel, ...]:
        """The kernels nearest to one with features (F,), nearest first."""
        if not self.names:
            return ()
        distance = np.sqrt(self._squares(features[None, :])[0] / self._known.shape[1])
        distance[distance < ROUNDED] = 0
        found: dict[str, float] = {}  # a name may stand for several kernels: the nearest of them counts
        for place in np.argsort(distance, kind="stable").tolist():
            found.setdefault(self.names[place], float(distance[place]))
            if len(found) == count:
                break
        return tuple(KnownKernel(name, far) for name, far in found.items())

    def of(self, features: Numbers) -> float:
        """Of a kernel with features (F,); see `of_each`."""
        return float(self.of_each(features[None, :])[0])

    def of_each(self, features: Numbers) -> Numbers:
        """(N,) of kernels with features (N, F): the part of the training kernels that are at least this far
        from other applications: 1 for a kernel that was learned from, 0 for one farther than any of them."""
        nearest = np.sqrt(self._squares(features).min(axis=1) / self._known.shape[1])
        farther = len(self.distance) - np.searchsorted(self.distance, nearest - ROUNDED)
        part: Numbers = farther / len(self.distance)
        return part

    def _squares(self, features: Numbers) -> Numbers:
        """(N, K): the squared distance of each of N kernels to each known one."""
        asked = self.scaling.apply(features)
        squared = (asked**2).sum(axis=1)[:, None] + self._squared - 2 * asked @ self._known.T
        return np.asarray(np.maximum(squared, 0), np.float64)

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
class ShareEstimate:
    """What a model says of one launch, in percent of the work."""

    share: float
    low: float
    high: float
    familiarity: float
    share_class: int
    "The class that most trees vote for."


Answers = Callable[[Numbers, Numbers], list[ShareEstimate]]
"Of launches with features of the code (N, F) and inputs (N, I)."


@dataclass(frozen=True, eq=False)
class KernelModel(AttributedPredictor):
    """Everything that prediction needs."""

    kind: ClassVar[str] = "pooled-forests"
    "Its entry of `apportion.learn.predictors`."

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

    def estimate(self, code: Numbers, inputs: Numbers, *, confidence: float) -> ShareEstimate:
        """The share of one launch, and the interval that holds the best one with this probability."""
        return self.estimates(code[None, :], inputs[None, :], confidence=confidence)[0]

    def estimates(self, code: Numbers, inputs: Numbers, *, confidence: float) -> list[ShareEstimate]:
        """The same of many launches: features of the code (N, F) and inputs (N, I)."""
        votes = self.pool.votes(np.hstack([code, inputs]))
        share = np.clip(votes.mean(), 0, 100)
        near = self.familiarity.of_each(code)
        half = self.calibration.quantile(confidence) * (votes.spread() + FLOOR) * widening(near)
        return [
            ShareEstimate(middle, max(0.0, middle - width), min(100.0, middle + width), known, int(voted))
            for middle, width, known, voted in zip(
                share.tolist(), half.tolist(), near.tolist(), votes.nearest(CLASSES).tolist(), strict=True
            )
        ]  # fmt: skip

    def inputs_for(self, query: KernelQuery) -> Numbers:
        """(I,): what the model is told of a launch beside its code.

        Raises:
            InvalidSetting: the model knows ranges, and the launch has none.
        """
        needs_range = RANGE_INPUTS[0] in self.inputs
        if needs_range and query.work_items is None:
            raise InvalidSetting(
                f"The models of {self.name} know the range of a launch: give its global size (--global-size)"
            )
        return inputs_of(query.bytes, query.group_items, query.work_items if needs_range else None)

    def answer(self, queries: Sequence[KernelQuery], *, confidence: float = 0.9) -> list[ShareAnswer]:
        return share_answers(
            queries, self.inputs_for, by_numpy(self, check_confidence(confidence)), confidence
        )

    def attributed(self, query: KernelQuery) -> tuple[float, dict[str, float]]:
        return self.pool.attributed(np.concatenate([query.code, self.inputs_for(query)]))

    def save(self, folder: Path) -> Path:
        """Write the model to `folder`, which comes back."""
        arrays: dict[str, Any] = {
            **self.pool.arrays(),
            "score": self.calibration.score,
            "weight": self.calibration.weight,
            "mean": self.familiarity.scaling.mean,
            "deviation": self.familiarity.scaling.deviation,
            "kernels": self.familiarity.kernels,
            "distance": self.familiarity.distance,
        }
        artifact = Artifact(
            "load-balance", self.kind, {"features": list(self.features)}, experiment=dict(self.about),
            predictor=self.kind, name=self.name,
        )  # fmt: skip
        write_artifact(folder, artifact, arrays)
        return folder

    @classmethod
    def load(cls, folder: Path) -> Self:
        artifact, kept = read_artifact(folder)
        try:
            return cls(
                artifact.name or folder.name,
                Pooled.of_arrays(artifact.hyperparameters["features"], kept),
                ConformalScores(kept["score"], kept["weight"]),
                Familiarity(Standard(kept["mean"], kept["deviation"]), kept["kernels"], kept["distance"]),
                artifact.experiment,
            )
        except KeyError as error:
            raise MalformedInput(f"is no model of shares ({error} is missing)", file=str(folder)) from error


def share_answers(
    queries: Sequence[KernelQuery],
    inputs_for: Callable[[KernelQuery], Numbers],
    answers: Answers,
    confidence: float,
) -> list[ShareAnswer]:
    """What `answers` gives for some launches, from 0 to 1."""
    if not queries:
        return []
    inputs = np.stack([inputs_for(query) for query in queries])
    return [
        ShareAnswer(
            found.share / 100, found.low / 100, found.high / 100, confidence, found.familiarity,
            found.share_class,
        )
        for found in answers(np.stack([query.code for query in queries]), inputs)
    ]  # fmt: skip


def by_numpy(model: KernelModel, confidence: float) -> Answers:
    """The model's own answers, with intervals of this confidence."""
    return partial(model.estimates, confidence=confidence)
