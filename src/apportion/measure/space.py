"""Space: what a configuration may choose, and configurations drawn from it.

C configurations, P parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting

Configuration = Mapping[str, Any]
"Parameter → value."

LARGEST = 2_000_000
"Combinations that are gone through at most."


@dataclass(frozen=True)
class Space:
    """Parameters and their values; `allowed` says which combinations there are."""

    values: Mapping[str, Sequence[object]]
    allowed: Callable[[Configuration], bool] | None = None
    drawn: tuple[Configuration, ...] = ()
    "Of a space too large to go through: the configurations that there are to choose from."

    def __post_init__(self) -> None:
        if not self.values:
            raise InvalidSetting("A space needs at least one parameter")
        size = 1
        for name, values in self.values.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise InvalidSetting(f"The parameter {name!r} needs a list of values, not {values!r}")
            if len(set(map(repr, values))) != len(values):
                raise InvalidSetting(f"The parameter {name!r} has a value twice: {list(values)}")
            size *= len(values)
        if size > LARGEST and not self.drawn:
            raise InvalidSetting(f"{size:,} combinations are more than {LARGEST:,}: take values out")

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """All that are allowed, the last parameter varying fastest; or those that were drawn.

        Raises:
            InvalidSetting: none is.
        """
        if self.drawn:
            return self.drawn
        every = (
            dict(zip(self.values, chosen, strict=True)) for chosen in itertools.product(*self.values.values())
        )
        found = tuple(one for one in every if self.allowed is None or self.allowed(one))
        if not found:
            raise InvalidSetting(f"No combination of {', '.join(self.values)} is allowed")
        return found

    def sample(self, count: int, *, seed: int, first: Configuration | None = None) -> list[Configuration]:
        """Different configurations by chance, `first` always among them and first; all if there are fewer."""
        rest = [one for one in self.configurations if one != first]
        start = [] if first is None else [first]
        if first is not None and len(rest) == len(self.configurations):
            raise InvalidSetting(f"{dict(first)} is no configuration of the space")
        order = np.random.default_rng(seed).permutation(len(rest))[: max(0, count - len(start))]
        return start + [rest[index] for index in order]

    def codes(self, configurations: Sequence[Configuration]) -> NDArray[np.uint16]:
        """(C, P): which of its values each parameter has."""
        numbers = {
            name: {repr(value): place for place, value in enumerate(values)}
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
        return np.array([len(values) for values in self.values.values()], np.int64)
