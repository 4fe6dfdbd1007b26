"""The policy `oracle`: the best of many cuts, each of which is timed first."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import permutations

from apportion.coexecution.observations import Choice, Observations
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.feedback import FeedbackPolicy
from apportion.errors import InvalidSetting
from apportion.runtime.split import Split

Search = Generator[Split | None, tuple[Split, float], Split]
"""Yields splits to be timed (None: what feedback would choose), is sent what was timed, and returns the best
one."""


@dataclass(frozen=True)
class SearchSettings:
    """Which cuts are timed."""

    steps: int = 10
    "Two devices: cuts at multiples of one part in so many. Chosen: neighbours differ by about the noise."
    refinements: tuple[float, ...] = (0.5, 0.25)
    "Two devices: then so many steps left and right of the best one. Chosen."
    moves: tuple[float, ...] = (0.1, 0.05)
    "More devices: shares that are moved from one device to another. Chosen."

    def __post_init__(self) -> None:
        if self.steps < 1 or not all(0 < each < 1 for each in (*self.refinements, *self.moves)):
            raise InvalidSetting(
                f"A search needs a step, and refinements and moves between 0 and 1, not {self}"
            )


SEARCH = SearchSettings()


class OraclePolicy(Policy):
    """Times cuts until it knows the best one: what a policy can reach at most, at a price nobody would
    pay."""

    def __init__(self, search: SearchSettings = SEARCH) -> None:
        self.search = search

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The next cut to be timed, or the best one when all were."""
        names = situation.names
        search = curve(names, self.search) if len(names) == 2 else descent(names, self.search)
        timed = iter(seen.trials)
        try:
            wanted = next(search)
            while (trial := next(timed, None)) is not None:
                wanted = search.send(trial)
        except StopIteration as best:
            return Choice(best.value, None, f"the best of {len(seen.trials)} measured cuts")
        if wanted is None:
            wanted = FeedbackPolicy().choose(situation, seen).split
        return Choice(wanted, None, "it is timed", trial=True)


def curve(names: list[str], settings: SearchSettings) -> Search:
    """A grid over the first device's share, refined round its best; for two devices."""
    first, second = names
    found: dict[float, float] = {}

    def measure(share: float) -> Search:
        share = round(min(1.0, max(0.0, share)), 4)
        if share not in found:
            _, found[share] = yield Split({first: share, second: 1 - share})
        return Split({first: share, second: 1 - share})

    for step in range(settings.steps + 1):
        yield from measure(step / settings.steps)
    for width in settings.refinements:
        best = min(found, key=lambda share: found[share])
        yield from measure(best - width / settings.steps)
        yield from measure(best + width / settings.steps)
    best = min(found, key=lambda share: found[share])
    return Split({first: best, second: 1 - best})


def descent(names: list[str], settings: SearchSettings) -> Search:
    """Each device alone, then shares moved from one device to another as long as that helps."""
    for name in names:
        yield Split({other: float(other == name) for other in names})
    split, best = yield None
    for width in settings.moves:
        for giver, taker in permutations(names, 2):
            if split.shares[giver] < width:
                continue
            shares = dict(split.shares)
            shares[giver] -= width
            shares[taker] += width
            _, seconds = yield Split(shares)
            if seconds < best:
                best, split = seconds, Split(shares)
    return split
