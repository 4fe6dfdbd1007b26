"""RelativeModel: a run's relative performance over known systems, from counters and known times.

It is a table of runs and ridge regressions on it, which take milliseconds to fit, so the table is what is
written. Of each regression the errors on applications that it had not seen are kept: they say how sure it is.
NumPy alone reads and evaluates it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_artifact, write_artifact
from apportion.data.counter_table import TABLE_I
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn.base import Answer, Predictor, check_confidence
from apportion.learn.relative.profile import Profile
from apportion.learn.relative.relative_features import NEEDED, features_of, time_features
from apportion.learn.relative.vectors import Ridge, ridge
from apportion.learn.shares.kernel_model import Familiarity

Numbers = NDArray[np.float64]
TASK = "relative-performance"
UNFAMILIAR = 0.05
"A run farther from every known one than 19 in 20 of those are from other applications gets no answer."
ONE_SIGMA = 0.6827
"The part of a Gaussian's errors that are smaller than one sigma."


@dataclass(frozen=True, eq=False)
class VectorAnswer:
    """Of one run: log2 times over the systems, less their mean."""

    vector: Numbers  # (S,)
    sigma: Numbers  # (O,): of the systems asked for, relative to the mean of those alone; log2
    familiarity: float
    "The part of the known runs that lie at least this far from any other application."
    distance: float
    "To the nearest known run, in deviations of the counters (root mean square)."


@dataclass(frozen=True, eq=False)
class Reference:
    """Known runs: what everything is learned from."""

    runs: tuple[str, ...]
    application: tuple[str, ...]
    systems: tuple[str, ...]
    counters: tuple[str, ...]
    values: Numbers  # (N, C)
    log_times: Numbers  # (N, S)

    def __post_init__(self) -> None:
        shapes = {
            "values": (len(self.runs), len(self.counters)), "log_times": (len(self.runs), len(self.systems))
        }  # fmt: skip
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise InvalidSetting(f"{name} must have the shape {shape}, not {getattr(self, name).shape}")
        if len(self.application) != len(self.runs):
            raise InvalidSetting("Each known run needs an application")


@dataclass(frozen=True, eq=False)
class RelativeModel(Predictor[Profile, Mapping[str, float]]):
    """What prediction needs."""

    question: ClassVar[str] = "relative-performance"
    kind: ClassVar[str] = "relative-ridge"
    "Its entry of `apportion.learn.predictors`."

    name: str
    reference: Reference
    features: str = "both"
    "Of the regression from counters alone."
    strength: float = 100.0
    timed_features: str = "shape"
    "Of the regressions that know one time."
    timed_strength: float = 30.0
    about: Mapping[str, Any] | None = None
    "The experiment that made it."

    def on(self, systems: Sequence[str]) -> RelativeModel:
        """The same model over some of its systems; its answers are as if it never knew the others."""
        for system in systems:
            if system not in self.reference.systems:
                raise UnknownName("system", system, self.reference.systems)
        if len(set(systems)) < 2:
            raise InvalidSetting("Relative performance needs two systems at least")
        at = [self.reference.systems.index(system) for system in systems]
        fewer = replace(self.reference, systems=tuple(systems), log_times=self.reference.log_times[:, at])
        return replace(self, reference=fewer)

    def row_of(self, profile: Mapping[str, float | None]) -> tuple[Numbers, tuple[str, ...]]:
        """(1, C): a profile's counters in order; for those missing the median, and their names.

        Raises:
            InvalidSetting: a counter is missing that cannot be done without.
        """
        missing = tuple(name for name in self.reference.counters if profile.get(name) is None)
        needed = [name for name in NEEDED if name in missing]
        of_command = [name for group in TABLE_I.values() for name in group if profile.get(name) is not None]
        if needed and of_command:
            raise InvalidSetting(
                f"The profile has the counters of a command ({', '.join(of_command[:3])}, …), and this model "
                "knows those of OpenCL kernels (`apportion counters kernel`). Of commands there is another: "
                "name none with --model, or make one of runs of yours with `apportion relative train`"
            )
        if needed:
            raise InvalidSetting(
                f"The profile has no {', '.join(needed)}. `apportion counters` can count them for a kernel."
            )
        if len(missing) == len(self.reference.counters):
            raise InvalidSetting(
                f"The profile has none of the counters that this model knows: {', '.join(missing)}"
            )
        given = [profile.get(name) for name in self.reference.counters]
        row = [
            float(usual) if value is None else float(value)
            for value, usual in zip(given, self._middle, strict=True)
        ]
        return np.array([row]), missing

    def vector(
        self, row: Numbers, log_seconds: Mapping[str, float] | None = None, *, over: Sequence[str] = ()
    ) -> VectorAnswer:
        """What is expected of a run with these counters (1, C).

        Args:
            log_seconds: log2 of its time on systems where it was run. The first one chooses the regression;
                the others correct its errors, which systems share.
            over: the systems whose sigmas are wanted; by default all. Two thirds of the errors on
                applications that were not seen stayed within one sigma.
        """
        known = dict(log_seconds or {})
        for system in (*known, *over):
            if system not in self.reference.systems:
                raise UnknownName("system", system, self.reference.systems)
        at = [self.reference.systems.index(system) for system in over or self.reference.systems]
        familiarity, distance = self.familiarity.of(self._counters(row)[0]), self._distance(row)
        if not known:
            head, errors, spread = self._head(None), *self._left_out(None)
            rows = self._rows(row, None, None)
            vector = head.predict(rows)[0]
            sigma = self._sigma(errors[:, at], spread) * head.spread(rows)[0]
            return VectorAnswer(vector, sigma, familiarity, distance)
        first = self.reference.systems.index(next(iter(known)))
        head, (errors, spread) = self._head(first), self._left_out(first)
        rows = self._rows(row, first, np.array([next(iter(known.values()))]))
        vector, width = head.predict(rows)[0], float(head.spread(rows)[0])
        if len(known) == 1:
            return VectorAnswer(vector, self._sigma(errors[:, at], spread) * width, familiarity, distance)
        vector, sigma = self._conditioned(vector, errors * width, known, first, at)
        return VectorAnswer(vector, sigma, familiarity, distance)

    def answer(
        self, queries: Sequence[Profile], *, confidence: float = 0.9
    ) -> list[Answer[Mapping[str, float]]]:
        """Of each run, the log2 time on every system, less their mean."""
        wide = NormalDist().inv_cdf((1 + check_confidence(confidence)) / 2)
        systems = self.reference.systems
        known = [
            {name: math.log2(value) for name, value in query.seconds.items() if name in systems}
            for query in queries
        ]
        rows = np.concatenate(
            [
                np.zeros((0, len(self.reference.counters))),
                *(self.row_of(query.counters)[0] for query in queries),
            ]
        )
        found = []
        for said in self.vectors(rows, known):
            value, low, high = (
                dict(zip(systems, (said.vector + off * said.sigma).tolist(), strict=True))
                for off in (0.0, -wide, wide)
            )
            found.append(Answer[Mapping[str, float]](value, low, high, confidence, said.familiarity))
        return found

    def vectors(self, rows: Numbers, known: Sequence[Mapping[str, float]]) -> list[VectorAnswer]:
        """What `vector` says of each run with counters (N, C), all at once: many runs cost little more than
        one.

        Args:
            known: log2 of each run's times on systems where it was run.
        """
        systems = self.reference.systems
        if not len(rows):
            return []
        scaled = self._counters(rows)
        familiarity, distance = self.familiarity.of_each(scaled), self._distances(scaled)
        groups: dict[int | None, list[int]] = {}
        found: dict[int, VectorAnswer] = {}
        for at, times in enumerate(known):
            if len(times) > 1:  # each set of systems has a correction of its own
                found[at] = self.vector(rows[[at]], times)
            else:
                groups.setdefault(next((systems.index(name) for name in times), None), []).append(at)
        for timed, places in groups.items():
            logs = None if timed is None else np.array([known[at][systems[timed]] for at in places])
            head, inputs = self._head(timed), self._rows(rows[places], timed, logs)
            sigma = self._sigma(*self._left_out(timed)) * head.spread(inputs)[:, None]
            for at, vector, wide in zip(places, head.predict(inputs), sigma, strict=True):
                found[at] = VectorAnswer(vector, wide, float(familiarity[at]), float(distance[at]))
        return [found[at] for at in range(len(rows))]

    @cached_property
    def familiarity(self) -> Familiarity:
        """How near runs are to those known, by their counters."""
        scaling = Standard.fit(self._counters(self.reference.values))
        scaled = scaling.apply(self._counters(self.reference.values))
        application = np.array(self.reference.application)
        distance = [
            float(np.sqrt(((scaled[application != application[row]] - scaled[row]) ** 2).mean(axis=1)).min())
            for row in range(len(scaled))
        ]
        return Familiarity(scaling, scaled.astype(np.float32), np.sort(np.array(distance)))

    def held_out(self, timed: int | None) -> Numbers:
        """(N, S): vectors of the known runs by regressions that had not seen their application.

        Args:
            timed: the number of the system whose times are known, or None.
        """
        return self._truth - self._left_out(timed)[0]

    def save(self, folder: Path) -> None:
        """Write the model; `load` reads it back."""
        reference = self.reference
        about = {
            "name": self.name, "runs": list(reference.runs), "application": list(reference.application),
            "systems": list(reference.systems), "counters": list(reference.counters),
            "features": self.features, "strength": self.strength, "timed_features": self.timed_features,
            "timed_strength": self.timed_strength,
        }  # fmt: skip
        weights = {"values": reference.values, "log_times": reference.log_times}
        artifact = Artifact(
            TASK, "ridge", about, experiment=dict(self.about or {}), predictor=self.kind, name=self.name
        )
        write_artifact(folder, artifact, weights)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model that `save` wrote.

        Raises:
            UnreadableFile, MalformedInput: there is none, or not whole.
        """
        artifact, weights = read_artifact(folder)
        said = artifact.hyperparameters
        try:
            reference = Reference(
                tuple(said["runs"]), tuple(said["application"]), tuple(said["systems"]),
                tuple(said["counters"]), weights["values"], weights["log_times"],
            )  # fmt: skip
            return cls(
                said["name"], reference, said["features"], float(said["strength"]), said["timed_features"],
                float(said["timed_strength"]), artifact.experiment,
            )  # fmt: skip
        except (KeyError, InvalidSetting) as error:
            raise MalformedInput(
                f"is no model of relative performance ({error})", file=str(folder)
            ) from error

    @property
    def truth(self) -> Numbers:
        """(N, S): vectors of the known runs, log2 time less its mean over the systems."""
        return self._truth

    @property
    def known_rows(self) -> Numbers:
        """(N, F): features of the known runs, from counters alone."""
        return self._known_rows(None)

    @cached_property
    def _truth(self) -> Numbers:
        times = self.reference.log_times
        return np.asarray(times - times.mean(axis=1, keepdims=True), np.float64)

    @cached_property
    def _middle(self) -> list[float]:
        """The usual value of each counter."""
        middle: list[float] = np.median(self.reference.values, axis=0).tolist()
        return middle

    @cached_property
    def _kept(self) -> dict[tuple[str, int | None], Any]:
        return {}

    def _counters(self, rows: Numbers) -> Numbers:
        return features_of("counters", self.reference.counters, rows)

    def _rows(self, values: Numbers, timed: int | None, log_seconds: Numbers | None) -> Numbers:
        names = self.reference.counters
        if timed is None or log_seconds is None:
            return features_of(self.features, names, values)
        return np.hstack(
            [features_of(self.timed_features, names, values), time_features(names, values, log_seconds)]
        )

    def _known_rows(self, timed: int | None) -> Numbers:
        times = None if timed is None else self.reference.log_times[:, timed]
        return self._rows(self.reference.values, timed, times)

    def _fit(self, timed: int | None, which: NDArray[np.bool_]) -> Ridge:
        strength = self.strength if timed is None else self.timed_strength
        return ridge({"strength": strength}, self._known_rows(timed)[which], self._truth[which])

    def _head(self, timed: int | None) -> Ridge:
        if ("head", timed) not in self._kept:
            self._kept["head", timed] = self._fit(timed, np.ones(len(self.reference.runs), np.bool_))
        head: Ridge = self._kept["head", timed]
        return head

    def _left_out(self, timed: int | None) -> tuple[Numbers, Numbers]:
        """Errors (N, S) and leverages (N,) of the known runs, each application by a fit without it."""
        if ("errors", timed) not in self._kept:
            application, rows = np.array(self.reference.application), self._known_rows(timed)
            errors, spread = np.zeros_like(self._truth), np.zeros(len(rows))
            for name in np.unique(application):
                test = application == name
                head = self._fit(timed, ~test)
                errors[test] = self._truth[test] - head.predict(rows[test])
                spread[test] = head.spread(rows[test])
            self._kept["errors", timed] = errors, spread
        found: tuple[Numbers, Numbers] = self._kept["errors", timed]
        return found

    def _sigma(self, errors: Numbers, spread: Numbers) -> Numbers:
        """(S,): what two thirds of the errors stay below per unit of leverage, by application."""
        application = np.array(self.reference.application)
        rows_of = {name: int((application == name).sum()) for name in np.unique(application).tolist()}
        weight = np.array([1 / rows_of[name] for name in application.tolist()])
        sigma = []
        for column in np.abs(errors - errors.mean(axis=1, keepdims=True)).T:
            score = column / spread
            order = np.argsort(score, kind="stable")
            below = np.cumsum(weight[order]) / weight.sum()
            sigma.append(float(score[order][int(np.searchsorted(below, ONE_SIGMA))]))
        return np.array(sigma)

    def _conditioned(
        self, vector: Numbers, errors: Numbers, known: Mapping[str, float], first: int, over: list[int]
    ) -> tuple[Numbers, Numbers]:
        """The vector and its sigmas, the errors of unknown times inferred from those of known ones."""
        # Times relative to the first known one: how their errors go together, and what they turn out to be.
        relative = errors - errors[:, [first]]
        covariance = relative.T @ relative / len(relative)
        times = vector - vector[first]
        start = next(iter(known.values()))
        at = [self.reference.systems.index(system) for system in list(known)[1:]]
        seen = np.array([known[self.reference.systems[i]] - start for i in at]) - times[at]
        gain = covariance[:, at] @ np.linalg.inv(covariance[np.ix_(at, at)] + 1e-9 * np.eye(len(at)))
        times = times + gain @ seen
        left = (covariance - gain @ covariance[at, :])[np.ix_(over, over)]
        centring = np.eye(len(over)) - 1 / len(over)
        variance = np.diag(centring @ left @ centring.T)
        return times - times.mean(), np.sqrt(np.maximum(variance, 0))

    def _distance(self, row: Numbers) -> float:
        return float(self._distances(self._counters(row))[0])

    def _distances(self, features: Numbers) -> Numbers:
        """(N,): of runs with features (N, F) to the nearest known run."""
        scaled, known = self.familiarity.scaling.apply(features), self.familiarity.kernels
        return np.array([np.sqrt(((known - row) ** 2).mean(axis=1)).min() for row in scaled])
