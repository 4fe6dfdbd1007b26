"""The bench: calls of a function with one configuration after another, timed, checked and given up early."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apportion.advise.study import TriedConfiguration
from apportion.errors import InvalidSetting
from apportion.measure.clocks import clock_for
from apportion.measure.results import Tolerance, difference
from apportion.measure.space import Configuration

SECONDS, RETURNED = "seconds", "returned"
"Objectives: how long a call takes, or what it returns. Any other word is a key of the dict that it returns."
_RESAMPLES = 2_000


@dataclass(frozen=True)
class BenchSettings:
    """How configurations are measured."""

    repeats: int = 5
    "Calls of each, after one that warms it up."
    objective: str = SECONDS
    tolerance: Tolerance = field(default_factory=Tolerance)
    prune: float = 3.0
    "Stop repeating where the first repeat takes so many times what the best one does; infinity never stops."
    confirm: int = 15
    "Calls of the best, and of what it is compared with, in turns at the end; 0 compares nothing."

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise InvalidSetting(f"repeats must be at least 1, not {self.repeats}")
        if not self.prune > 1:
            raise InvalidSetting(f"prune must be more than 1 (times the best), not {self.prune}")
        if self.confirm < 0:
            raise InvalidSetting(f"confirm must be 0 or more calls, not {self.confirm}")


@dataclass(frozen=True)
class Gain:
    """How many times as fast the best is as something else, both called in turns after the search."""

    than: str
    "What it is compared with."
    value: float
    low: float
    high: float
    "Between them it lies in 95 of 100 repetitions."
    best: tuple[float, ...]
    other: tuple[float, ...]
    "Seconds of each call."

    @property
    def certain(self) -> bool:
        """Whether it is faster for sure: the whole interval lies above 1."""
        return self.low > 1

    def in_words(self) -> str:
        """A sentence that claims no more than was measured."""
        span = f"between {self.low:.2f} and {self.high:.2f} in 95 of 100 repetitions"
        if self.certain:
            return f"{self.value:.2f} times as fast as {self.than} ({span})"
        return f"not faster than {self.than} as far as {len(self.best)} calls of each can tell ({span})"


class Bench:
    """Calls of one function.

    Args:
        function: called as `function(*arguments, **configuration)`.
        arguments: what it is called with each time.
        expected: what it must return; anything when None.
        settings: how it is measured.
    """

    def __init__(
        self, function: Callable[..., Any], arguments: Sequence[Any], expected: Any, settings: BenchSettings
    ) -> None:
        self._function, self._arguments = function, tuple(arguments)
        self._expected, self._settings = expected, settings
        self._clock = clock_for(function, arguments)
        if expected is not None and settings.objective != SECONDS:
            raise InvalidSetting(
                "What the function returns is made small here: there is nothing to expect of it"
            )

    def measure(self, one: Configuration, best: float) -> TriedConfiguration:
        """What comes of a configuration.

        Args:
            best: the smallest value so far; infinity before there is one.
        """
        if self._settings.objective != SECONDS:
            return self._valued(one)
        failure = self._failure(one)
        if failure:
            return TriedConfiguration(one, (), failure)
        times: list[float] = []
        for _ in range(self._settings.repeats):
            try:
                times.append(self._clock.time(lambda: self._call(one))[0])
            except (Exception, SystemExit) as error:  # whatever a user's function raises
                return TriedConfiguration(one, tuple(times), _said(error))
            if times[0] > self._settings.prune * best:
                break
        pruned = len(times) < self._settings.repeats
        return TriedConfiguration(one, tuple(times), value=float(np.median(times)), pruned=pruned)

    def compare(self, best: Configuration, other: Configuration, than: str) -> Gain | None:
        """How much faster the best is, in calls that take turns; None where that is not wanted, or fails."""
        calls = self._settings.confirm
        if not calls or self._settings.objective != SECONDS:
            return None
        times: tuple[list[float], list[float]] = ([], [])
        try:
            for turn in range(calls):
                order = ((0, best), (1, other)) if turn % 2 else ((1, other), (0, best))
                for place, one in order:
                    times[place].append(self._clock.time(lambda one=one: self._call(one))[0])  # type: ignore[misc]
        except (Exception, SystemExit):  # what ran before does not run now: nothing is claimed
            return None
        return gain_of(times[0], times[1], than)

    def _call(self, one: Configuration) -> Any:
        return self._function(*self._arguments, **one)

    def _failure(self, one: Configuration) -> str:
        """Why a configuration cannot be used, after the call that warms it up; empty when it can."""
        try:
            _, result = self._clock.time(lambda: self._call(one))
        except (Exception, SystemExit) as error:  # whatever a user's function raises
            return _said(error)
        if self._expected is None:
            return ""
        wrong = difference(result, self._expected, self._settings.tolerance)
        return f"wrong result: {wrong}" if wrong else ""

    def _valued(self, one: Configuration) -> TriedConfiguration:
        values: list[float] = []
        metrics: dict[str, list[float]] = {}
        seconds = []
        try:
            for _ in range(self._settings.repeats):
                taken, result = self._clock.time(lambda: self._call(one))
                seconds.append(taken)
                named = _named(result, self._settings.objective)
                values.append(named[self._settings.objective])
                for name, value in named.items():
                    metrics.setdefault(name, []).append(value)
        except (Exception, SystemExit) as error:  # whatever a user's function raises
            return TriedConfiguration(one, tuple(seconds), _said(error))
        value = float(np.median(values))
        if not math.isfinite(value):
            return TriedConfiguration(one, tuple(seconds), f"it returned {value}, not a finite number")
        others = {name: float(np.median(found)) for name, found in metrics.items() if name != RETURNED}
        return TriedConfiguration(one, tuple(seconds), value=value, metrics=others)


def gain_of(best: Sequence[float], other: Sequence[float], than: str) -> Gain:
    """The ratio of medians, with an interval from drawing the turns anew."""
    pairs = np.array([best, other])
    drawn = np.random.default_rng(0).integers(pairs.shape[1], size=(_RESAMPLES, pairs.shape[1]))
    medians = np.median(pairs[:, drawn], axis=2)
    low, high = np.percentile(medians[1] / medians[0], [2.5, 97.5])
    value = float(np.median(other) / np.median(best))
    return Gain(than, value, float(low), float(high), tuple(best), tuple(other))


def why_all_failed(measured: Iterable[TriedConfiguration]) -> str:
    """The reasons of failures, the most frequent first, in one line."""
    reasons = Counter(one.failure for one in measured if one.failure)
    return "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(3))


def _named(result: Any, objective: str) -> dict[str, float]:
    if isinstance(result, Mapping):
        found = {str(name): float(value) for name, value in result.items()}
        if objective == RETURNED and found:
            found[RETURNED] = next(iter(found.values()))
        if objective not in found:
            raise ValueError(f"it returned no {objective!r}, only {', '.join(found) or 'nothing'}")
        return found
    if objective != RETURNED:
        raise ValueError(f"it returned {result!r}, not a dict with {objective!r}")
    return {RETURNED: float(result)}


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0][:200] if first else ''}"
