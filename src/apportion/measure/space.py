"""Space: what a configuration may choose, and configurations drawn from it.

C configurations, P parameters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.measure.expression import Condition, condition_of

Configuration = Mapping[str, Any]
"Parameter → value."

LARGEST = 2_000_000
"Combinations that are gone through at most; of larger spaces configurations are drawn."
_DRAWS = 2_000
"How often a configuration is drawn for each that is wanted, before a space counts as empty."
_DRAWN_TOGETHER = 1_000
"Configurations drawn by one call of NumPy: one by one, drawing takes six times as long."


@dataclass(frozen=True)
class Range:
    """A parameter that may be any number between two, both included.

    Range(1, 64)                       # 1, 2, … 64
    Range(32, 1024, step=32)           # 32, 64, … 1024
    Range(1e-4, 1.0, log=True)         # any real number, as often below 0.01 as above
    """

    low: float
    high: float
    step: float | None = None
    "Between values; 1 for integers when not given. Real numbers without a step are continuous."
    log: bool = False
    "Whether values are drawn evenly over orders of magnitude."

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InvalidSetting(
                f"A range goes from a number to a larger one, not from {self.low} to {self.high}"
            )
        if self.log and self.low <= 0:
            raise InvalidSetting(f"A range over orders of magnitude begins above 0, not at {self.low}")
        if self.step is not None and not self.step > 0:
            raise InvalidSetting(f"The step of a range must be more than 0, not {self.step}")

    @property
    def whole(self) -> bool:
        """Whether all its values are integers."""
        return all(isinstance(one, int) for one in (self.low, self.high, self.step or 1))

    @property
    def count(self) -> float:
        """How many values there are; infinity where it is continuous."""
        step = self.step if self.step is not None else 1 if self.whole else None
        return math.inf if step is None else math.floor((self.high - self.low) / step + 1e-9) + 1

    def value(self, place: int) -> float:
        """A value by its number, from 0."""
        return self.low + place * (self.step or 1)

    def draw(self, random: np.random.Generator, count: int) -> list[float]:
        """Values at random."""
        if self.log:
            exact = np.exp(random.uniform(math.log(self.low), math.log(self.high), count))
            return [self.nearest(one) for one in exact.tolist()]
        if math.isinf(self.count):
            return random.uniform(self.low, self.high, count).tolist()  # type: ignore[no-any-return]
        return [self.value(place) for place in random.integers(int(self.count), size=count).tolist()]

    def nearest(self, value: float) -> float:
        """The value of the range that is nearest to a number."""
        if math.isinf(self.count):
            return min(max(value, self.low), self.high)
        place = round((value - self.low) / (self.step or 1))
        return self.value(min(max(place, 0), int(self.count) - 1))


Values = Sequence[Any] | Range
"What a parameter may be."


@dataclass(frozen=True)
class Space:
    """Parameters and their values; `allowed` says which combinations there are."""

    values: Mapping[str, Values]
    allowed: Condition | None = None
    'An expression (`"x * y <= 1024"`), or a function of parameters by name or of the whole configuration.'
    drawn: tuple[Configuration, ...] = ()
    "Of a space too large to go through: the configurations that there are to choose from."
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    "Parameter → when it means something; otherwise it is None."

    def __post_init__(self) -> None:
        if not self.values:
            raise InvalidSetting("A space needs at least one parameter")
        object.__setattr__(self, "values", {name: _plain(values) for name, values in self.values.items()})
        for name, values in self.values.items():
            if isinstance(values, Range):
                continue
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise InvalidSetting(
                    f"The parameter {name!r} needs a list of values or a Range, not {values!r}"
                )
            if len(set(map(repr, values))) != len(values):
                raise InvalidSetting(f"The parameter {name!r} has a value twice: {list(values)}")
        for name in self.conditions:
            if name not in self.values:
                raise InvalidSetting(f"There is a condition for {name!r}, which is no parameter")
        _ = self._is_allowed, self._is_active  # expressions are read now, so that mistakes are told now

    @property
    def size(self) -> float:
        """How many combinations there are, allowed or not; infinity with a continuous range."""
        if self.drawn:
            return len(self.drawn)
        return math.prod(one.count if isinstance(one, Range) else len(one) for one in self.values.values())

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """All that are allowed, the last parameter varying fastest; or those that were drawn.

        Raises:
            InvalidSetting: none is, or there are too many to go through.
        """
        if self.drawn:
            return self.drawn
        if self.size > LARGEST:
            raise InvalidSetting(
                f"{self.size:,.0f} combinations are more than {LARGEST:,}: draw some of them"
            )
        every = itertools.product(*(_listed(one) for one in self.values.values()))
        found = tuple(self._met(dict(zip(self.values, chosen, strict=True)) for chosen in every))
        if not found:
            raise InvalidSetting(f"No combination of {', '.join(self.values)} is allowed")
        return found

    def draw(self, random: np.random.Generator, count: int) -> list[Configuration]:
        """Different configurations at random, without going through all; fewer where there are no more.

        Raises:
            InvalidSetting: none was found.
        """
        if self.drawn:
            order = random.permutation(len(self.drawn))[:count]
            return [self.drawn[place] for place in order]
        found: dict[str, Configuration] = {}
        left = max(_DRAWS, 20 * count)
        while left > 0 and len(found) < count:
            together = min(left, _DRAWN_TOGETHER)
            left -= together
            columns = [_drawn(values, random, together) for values in self.values.values()]
            drawn = [dict(zip(self.values, chosen, strict=True)) for chosen in zip(*columns, strict=True)]
            for met in self._met(drawn):
                found[key_of(met)] = met
                if len(found) >= count:
                    break
        if not found:
            raise InvalidSetting(
                f"No combination of {', '.join(self.values)} is allowed, of many drawn at random"
            )
        return list(found.values())

    def near(self, one: Configuration, random: np.random.Generator, count: int) -> list[Configuration]:
        """Different allowed configurations that differ from one in a parameter or two."""
        found: dict[str, Configuration] = {}
        for _ in range(8 * count):
            other = dict(one)
            for name in random.choice(list(self.values), 1 + int(random.random() < 0.3)):
                other[name] = _drawn_near(self.values[name], other[name], random)
            found.update((key_of(met), met) for met in self._met([other]))
            if self.drawn:
                found = {key: met for key, met in found.items() if key in self._drawn_keys}
            if len(found) >= count:
                break
        found.pop(key_of(one), None)
        return list(found.values())

    def holds(self, one: Configuration) -> bool:
        """Whether a configuration is of this space."""
        if set(one) != set(self.values):
            return False
        for name, values in self.values.items():
            inactive = name in self.conditions and one[name] is None
            if isinstance(values, Range):
                value = one[name]
                fits = isinstance(value, int | float) and math.isclose(values.nearest(value), value)
            else:
                fits = any(repr(one[name]) == repr(value) for value in values)
            if not (fits or inactive):
                return False
        if self.drawn:
            return key_of(one) in self._drawn_keys
        return any(True for _ in self._met([one]))

    def sample(self, count: int, *, seed: int, first: Configuration | None = None) -> list[Configuration]:
        """Different configurations at random, `first` always among them and first; all if there are fewer."""
        rest = [one for one in self.configurations if one != first]
        start = [] if first is None else [first]
        if first is not None and len(rest) == len(self.configurations):
            raise InvalidSetting(f"{dict(first)} is no configuration of the space")
        order = np.random.default_rng(seed).permutation(len(rest))[: max(0, count - len(start))]
        return start + [rest[index] for index in order]

    def codes(self, configurations: Sequence[Configuration]) -> NDArray[np.uint16]:
        """(C, P): which of its values each parameter has."""
        numbers = {
            name: {repr(value): place for place, value in enumerate(_listed(values))}
            for name, values in self.values.items()
        }
        try:
            rows = [[numbers[name][repr(one[name])] for name in self.values] for one in configurations]
        except KeyError as error:
            raise InvalidSetting(f"{error} is no parameter of the space, or no value of one") from error
        return np.array(rows, np.uint16).reshape(-1, len(self.values))

    @property
    def counts(self) -> NDArray[np.int64]:
        """(P,): how many values each parameter has."""
        return np.array([len(_listed(values)) for values in self.values.values()], np.int64)

    @cached_property
    def _drawn_keys(self) -> frozenset[str]:
        return frozenset(map(key_of, self.drawn))

    @cached_property
    def _is_allowed(self) -> Callable[[Configuration], bool] | None:
        return None if self.allowed is None else condition_of(self.allowed, self.values)

    @cached_property
    def _is_active(self) -> dict[str, Callable[[Configuration], bool]]:
        return {name: condition_of(condition, self.values) for name, condition in self.conditions.items()}

    def _met(self, candidates: Iterator[Configuration] | Sequence[Configuration]) -> Iterator[Configuration]:
        """Those that are allowed, each once, with None for parameters that mean nothing in them."""
        seen: set[str] = set()
        for one in candidates:
            met = dict(one)
            for name, is_active in self._is_active.items():
                if not is_active(met):
                    met[name] = None
                elif met[name] is None:
                    met[name] = _first(self.values[name])
            if self._is_allowed is not None and not self._is_allowed(met):
                continue
            if self._is_active:
                key = key_of(met)
                if key in seen:
                    continue
                seen.add(key)
            yield met


def plain(one: Configuration) -> Configuration:
    """A configuration with plain numbers instead of NumPy's, which compare and are written otherwise."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in one.items()}


def key_of(one: Configuration) -> str:
    """What tells a configuration from all others."""
    return repr(sorted(one.items()))


def _plain(values: Values) -> Values:
    if isinstance(values, np.ndarray):
        return tuple(values.tolist())
    if isinstance(values, Sequence) and any(isinstance(value, np.generic) for value in values):
        return tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    return values


def _listed(values: Values) -> Sequence[Any]:
    if not isinstance(values, Range):
        return values
    if math.isinf(values.count):
        raise InvalidSetting("A continuous range has no list of values; give it a step")
    return [values.value(place) for place in range(int(values.count))]


def _first(values: Values) -> Any:
    return values.low if isinstance(values, Range) else values[0]


def _drawn(values: Values, random: np.random.Generator, count: int) -> list[Any]:
    if isinstance(values, Range):
        return values.draw(random, count)
    return [values[place] for place in random.integers(len(values), size=count).tolist()]


def _drawn_near(values: Values, value: Any, random: np.random.Generator) -> Any:
    """A value that stands near: of a list, within two places; of a range, within a tenth of it."""
    if isinstance(values, Range):
        if value is None:
            return values.draw(random, 1)[0]
        if values.log:
            width = (math.log(values.high) - math.log(values.low)) / 10
            return values.nearest(math.exp(math.log(value) + width * random.standard_normal()))
        width = max((values.high - values.low) / 10, values.step or (1 if values.whole else 0))
        return values.nearest(value + width * random.standard_normal())
    places = [place for place, one in enumerate(values) if repr(one) == repr(value)]
    if not places or random.random() < 0.3:
        return values[int(random.integers(len(values)))]
    return values[min(max(places[0] + int(random.choice([-2, -1, 1, 2])), 0), len(values) - 1)]
