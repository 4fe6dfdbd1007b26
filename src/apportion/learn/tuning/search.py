"""Search: which configurations to measure next, asked for and told one by one.

The first few lie far from each other. From then on Gaussian processes are fitted to the logarithms of what
was measured, one of them with the slow half pressed together (`Scale`), and the configuration is asked for
that is expected to improve most on the best one, weighed with how likely it is to run at all: those that
failed count as slow as the slowest, and teach where others will fail. Tables of the same space from other
GPUs or other sizes (`KnownTable`) are functions that the processes may lean on as far as measurements agree
with them.

C configurations of a pool, F features, K known tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.learn.tuning.encoding import Encoding
from apportion.learn.tuning.gaussian_process import (
    Floats,
    GaussianProcess,
    Prior,
    log_expected_improvement,
)
from apportion.learn.tuning.scale import Scale
from apportion.measure.space import Configuration, Space, key_of

_LEAST_CHANCE = 0.02
"How likely a configuration runs at least, however many like it failed."


@dataclass(frozen=True)
class View:
    """How one of a search's processes looks at what was measured."""

    prior: Prior
    slow_reach: float = math.inf
    """How far above the median differences count half, as a part of the distance from the best to the median;
    infinity compares all values by their logarithms alone."""

    def __post_init__(self) -> None:
        if not self.slow_reach > 0:
            raise InvalidSetting(f"slow_reach must be more than 0, not {self.slow_reach}")


@dataclass(frozen=True)
class SearchPlan:
    """How a search goes about it; chosen on the spaces that the page of tuning's results names."""

    first: int = 8
    "Configurations measured, far from each other, before a model is fitted."
    known_first: int = 3
    "Of these, those that known tables say are the fastest, where there are any."
    pool: int = 12_000
    "Candidates that are compared for each measurement, drawn anew each time."
    drawn: int = 2_000
    "The same of a space that is too large to go through; a tenth of them is drawn anew each time."
    listed: int = 200_000
    """Combinations up to which a space is gone through as a whole; of larger ones candidates are drawn, but
    where all that there are were given."""
    spread_pool: int = 400
    "Candidates among which those far from each other are looked for, at most."
    spread_share: float = 0.02
    """The same, as a part of a space that is gone through: among all configurations of a small space those
    far from each other are its corners, where few programs are fast."""
    neighbours: int = 60
    "Candidates that differ little from each of the best three."
    views: tuple[View, ...] = (
        View(Prior(reach=0.6, reach_spread=0.6)),
        View(Prior(reach=2.0, reach_spread=0.6), slow_reach=0.5),
    )
    """A process is fitted of each, and what they expect to gain is averaged: neither few measurements nor
    very slow ones decide alone."""

    def __post_init__(self) -> None:
        for name in ("first", "pool", "drawn", "listed", "spread_pool"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class KnownTable:
    """What the same space took elsewhere: on another GPU, at another size; NaN where it failed."""

    configurations: Sequence[Configuration]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.configurations) != len(self.values):
            raise InvalidSetting(
                f"{len(self.configurations)} configurations with {len(self.values)} values are no table"
            )
        if sum(math.isfinite(value) for value in self.values) < 2:
            raise InvalidSetting("A known table needs two configurations at least that ran")


class Search:
    """Asks for configurations of a space, and is told what they took.

        search = Search(space, seed=1)
        for one in search.ask(3):
            search.tell(one, seconds_of(one))       # None for one that failed
        search.best

    Args:
        space: what there is to choose.
        seed: draws what is drawn by chance.
        known: tables of the same space from elsewhere.
        settings: how it goes about it.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        known: Iterable[KnownTable] = (),
        settings: SearchPlan | None = None,
    ) -> None:
        self.space, self.settings = space, settings or SearchPlan()
        self._random = np.random.default_rng(seed)
        self._encoding = Encoding.of(space)
        self._tables = [_Table(one, self._encoding) for one in known]
        self._views = self.settings.views
        if self._tables:  # they are lines in what is measured only where both are on one scale: logarithms
            self._views = tuple(replace(view, slow_reach=math.inf) for view in self._views)
        gone_through = bool(space.drawn) or space.size <= self.settings.listed
        self._listed = space.configurations if gone_through else None
        self._points = None if self._listed is None else self._encoding.points(self._listed)
        self._known = None if self._listed is None else self._functions(self._listed, self._points)
        self._place = {} if self._listed is None else {key_of(one): at for at, one in enumerate(self._listed)}
        self._told: dict[str, tuple[Configuration, float]] = {}
        self._asked: dict[str, Configuration] = {}
        self._drawn: dict[str, Configuration] = {}
        self._parameters: list[Floats | None] = [None] * len(self._views)

    @property
    def told(self) -> list[tuple[Configuration, float]]:
        """What was measured, in order; NaN for what failed."""
        return list(self._told.values())

    @property
    def best(self) -> Configuration:
        """The configuration with the smallest value.

        Raises:
            InvalidSetting: none has one.
        """
        good = [(value, at) for at, (_, value) in enumerate(self._told.values()) if math.isfinite(value)]
        if not good:
            raise InvalidSetting(f"None of {len(self._told)} configurations could be measured")
        return list(self._told.values())[min(good)[1]][0]

    @property
    def exhausted(self) -> bool:
        """Whether every configuration of the space was asked for or told."""
        return self._listed is not None and len(self._told | self._asked) >= len(self._listed)

    def tell(self, one: Configuration, value: float | None) -> None:
        """Say what a configuration took; None, NaN or infinity says that it failed.

        Raises:
            InvalidSetting: the configuration is not of the space.
        """
        key = key_of(one)
        of_space = self.space.holds(one) if self._listed is None else key in self._place
        if not of_space:
            raise InvalidSetting(f"{dict(one)} is no configuration of the space")
        number = math.nan if value is None or not math.isfinite(value) else float(value)
        self._asked.pop(key, None)
        self._told[key] = (one, number)

    def note_asked(self, one: Configuration) -> None:
        """Say that somebody else is measuring a configuration."""
        if key_of(one) not in self._told:
            self._asked[key_of(one)] = one

    def forget_asked(self) -> None:
        """Say that whoever was measuring something is not any more."""
        self._asked.clear()

    def ask(self, count: int = 1) -> list[Configuration]:
        """The configurations to measure next; fewer where the space has no more."""
        found: list[Configuration] = []
        while len(found) < count and not self.exhausted:
            one = self._next()
            if one is None:
                break
            self.note_asked(one)
            found.append(one)
        return found

    def predict(self, configurations: Sequence[Configuration]) -> Floats:
        """(C,) what configurations are expected to take.

        Raises:
            InvalidSetting: fewer than two were measured.
        """
        model = self._model()
        if model is None:
            raise InvalidSetting("Two configurations at least must have been measured")
        whole = configurations is self._listed and self._points is not None and self._known is not None
        points = self._points if whole else self._encoding.points(configurations)
        known = self._known if whole else self._functions(configurations, points)
        assert points is not None
        assert known is not None
        return model.values([one.process.predict(points, known)[0] for one in model.fitted])

    def left_out(self) -> tuple[Floats, Floats]:
        """(n,) what measured configurations that ran took, and what the others say that each took.

        Raises:
            InvalidSetting: fewer than two were measured.
        """
        model = self._model()
        if model is None:
            raise InvalidSetting("Two configurations at least must have been measured")
        entries = list(self._told.values())
        runs = model.runs[: len(entries)]
        truth = np.array([value for _, value in entries])[runs]
        said = model.values([one.process.left_out() for one in model.fitted])
        return truth, said[: len(entries)][runs]

    def _next(self) -> Configuration | None:
        taken = len(self._told) + len(self._asked)
        good = sum(math.isfinite(value) for _, value in self._told.values())
        pool, points, known = self._candidates()
        if not pool:
            return None
        if self._tables and taken < self.settings.known_first:
            return pool[int(np.argmin(known.sum(axis=1)))]
        if taken < self.settings.first or good < 2:
            return pool[self._farthest(points)]
        model = self._model()
        assert model is not None
        gain = np.full(len(pool), -np.inf)
        fails = np.where(model.runs, 0.0, 1.0)
        for fitted in model.fitted:
            mean, deviation, failing = fitted.process.predict(points, known, fails)
            one = log_expected_improvement(fitted.best, mean, deviation)
            one = one + np.log(np.clip(1 - failing, _LEAST_CHANCE, 1.0))
            gain = np.logaddexp(gain, one - one.max())
        return pool[int(np.argmax(gain))]

    def _candidates(self) -> tuple[Sequence[Configuration], Floats, Floats]:
        """Configurations that nobody measured, with their points and known functions."""
        begun = {**self._told, **self._asked}
        early = len(begun) < self.settings.first
        usual = self.settings.drawn if self._listed is None else self.settings.pool
        if early and not self._tables:
            part = math.inf if self._listed is None else self.settings.spread_share * len(self._listed)
            most = int(max(1, min(self.settings.spread_pool, part)))
        else:
            most = usual
        if self._listed is not None:
            assert self._points is not None
            assert self._known is not None
            free = np.ones(len(self._listed), np.bool_)
            free[[self._place[key] for key in begun if key in self._place]] = False
            places = np.flatnonzero(free)
            if len(places) > most:
                places = self._random.choice(places, most, replace=False)
                places = np.union1d(places, self._near_listed(free))
            return [self._listed[at] for at in places.tolist()], self._points[places], self._known[places]
        drawn = self._drawn_candidates(most)
        for one, _ in self._best_told(3):
            near = self.space.near(one, self._random, self.settings.neighbours)
            drawn.update((key_of(other), other) for other in near)
        for key in begun:
            drawn.pop(key, None)
        pool = list(drawn.values())
        points = self._encoding.points(pool) if pool else np.zeros((0, 1))
        return pool, points, self._functions(pool, points)

    def _drawn_candidates(self, count: int) -> dict[str, Configuration]:
        """Candidates of a large space; most are kept, as drawing takes long where little is allowed."""
        kept = self._drawn
        try:
            fresh = self.space.draw(self._random, max(count - len(kept), count // 10))
        except InvalidSetting:  # this time nothing that is allowed was drawn
            if not kept:
                raise
            fresh = []
        kept.update((key_of(one), one) for one in fresh)
        for key in list(kept)[: max(0, len(kept) - self.settings.drawn)]:
            del kept[key]
        return dict(kept)

    def _near_listed(self, free: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Free configurations of the list that stand nearest to each of the best three."""
        assert self._points is not None
        found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        for one, _ in self._best_told(3):
            far = ((self._points - self._points[self._place[key_of(one)]]) ** 2).sum(axis=1)
            far[~free] = np.inf
            near = np.argsort(far, kind="stable")[: self.settings.neighbours]
            found.append(near[np.isfinite(far[near])])
        return np.concatenate(found)

    def _best_told(self, count: int) -> list[tuple[Configuration, float]]:
        good = [(one, value) for one, value in self._told.values() if math.isfinite(value)]
        return sorted(good, key=lambda entry: entry[1])[:count]

    def _farthest(self, points: Floats) -> int:
        """Which point lies farthest from everything that was begun; by chance where nothing was."""
        begun = [one for one, _ in self._told.values()] + list(self._asked.values())
        if not begun:
            return int(self._random.integers(len(points)))
        others = self._encoding.points(begun)
        square = ((points[:, None, :] - others[None, :, :]) ** 2).sum(axis=2)
        return int(np.argmax(square.min(axis=1)))

    def _model(self) -> _Model | None:
        """What was measured, as processes; None where too little was."""
        entries = list(self._told.values())
        values = np.array([value for _, value in entries])
        runs = np.isfinite(values)
        if runs.sum() < 2:
            return None
        # Who is still measuring counts as middling, so that nobody else goes to the same place.
        pending = list(self._asked.values())
        ran = values[runs]
        values = np.where(runs, values, ran.max())
        everything = [one for one, _ in entries] + pending
        points = self._encoding.points(everything)
        known = self._functions(everything, points)
        often = len(entries) > self.settings.first + 2 and len(entries) % 10 != 0
        runs = np.concatenate([runs, np.ones(len(pending), np.bool_)])
        fitted = []
        for place, view in enumerate(self._views):
            scale = Scale.of(ran, slow_reach=view.slow_reach)
            scaled = scale.targets(values)
            scaled = np.concatenate([scaled, np.full(len(pending), float(np.median(scaled)))])
            centre, deviation = float(scaled.mean()), float(scaled.std()) or 1.0
            targets = (scaled - centre) / deviation
            start = self._parameters[place] if often else None
            process = GaussianProcess.fit(
                points, targets, known, view.prior, start=start, steps=12 if often else 40
            )
            self._parameters[place] = process.parameters
            fitted.append(_Fitted(process, scale, centre, deviation, float(targets[runs].min())))
        return _Model(tuple(fitted), runs)

    def _functions(self, configurations: Sequence[Configuration], points: Floats | None) -> Floats:
        """(C, K) what known tables say."""
        if not self._tables:
            return np.zeros((len(configurations), 0))
        assert points is not None
        return np.stack([table.at(configurations, points) for table in self._tables], axis=1)


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A process of targets: values on a scale, less their centre, in deviations."""

    process: GaussianProcess
    scale: Scale
    centre: float
    deviation: float
    best: float
    "The smallest target that was reached."

    def logs(self, targets: Floats) -> Floats:
        """(C,) the logarithms that targets mean."""
        return self.scale.logs(targets * self.deviation + self.centre)


@dataclass(frozen=True, eq=False)
class _Model:
    """Processes of the same measurements."""

    fitted: tuple[_Fitted, ...]
    runs: NDArray[np.bool_]
    "Which of the measured configurations ran."

    def values(self, targets: Sequence[Floats]) -> Floats:
        """(C,) what the targets of each process mean, averaged by their logarithms."""
        logs = [one.logs(found) for one, found in zip(self.fitted, targets, strict=True)]
        return self.fitted[0].scale.values(np.mean(logs, axis=0))


class _Table:
    """A known table as a function: in deviations from its middle, high for what is slow or fails."""

    _HIGHEST = 2.5

    def __init__(self, known: KnownTable, encoding: Encoding) -> None:
        values = np.array(known.values, np.float64)
        good = np.isfinite(values)
        targets = Scale.of(values[good]).targets(values[good])
        scaled = (targets - float(np.median(targets))) / (float(targets.std()) or 1.0)
        self._values = np.full(len(values), self._HIGHEST)
        self._values[good] = np.minimum(scaled, self._HIGHEST)
        self._place = {key_of(one): at for at, one in enumerate(known.configurations)}
        self._points = encoding.points(known.configurations)

    def at(self, configurations: Sequence[Configuration], points: Floats) -> Floats:
        """(C,) what it says; of a configuration that it does not have, what it says of the nearest."""
        places = np.array([self._place.get(key_of(one), -1) for one in configurations], np.int64)
        for start in np.flatnonzero(places < 0)[:, None]:
            places[start] = int(np.argmin(((self._points - points[start]) ** 2).sum(axis=1)))
        found: Floats = self._values[places] if len(places) else np.zeros(0)
        return found
