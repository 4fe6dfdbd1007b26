"""Source: one way of counting what a command does, and what it says when it cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from apportion.measure.counters.command import Command, Ended, Watcher, execute
from apportion.measure.counters.mix import MIX_COUNTERS


@dataclass(frozen=True)
class MissingCounter:
    """Why a counter is missing, and what can be done about it."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class Reading:
    """What a source counted in one execution."""

    values: Mapping[str, float | None]
    seconds: float
    "How long the command took under this source."
    problems: Mapping[str, MissingCounter] = field(default_factory=dict)
    "Counter → why it is missing."
    exactness: Mapping[str, str] = field(default_factory=dict)
    "Counter → its exactness this time, where it is less than the source's own."


def reading_of_mix(values: Mapping[str, float | None], unknown_share: float, seconds: float) -> Reading:
    """A reading of an instruction mix of which a part is unknown: code that the source could not read.

    Ratios are estimated where that part is small, and missing, with the reason, where it is not.
    """
    ratios = [name for name in values if name.endswith("_ratio") and name in MIX_COUNTERS]
    if not unknown_share:
        return Reading(values, seconds)
    problem = MissingCounter(
        f"{unknown_share:.1%} of the executed instructions are in code that was made at run time",
        "count with --source qemu, which sees all code",
    )
    missing = {name: problem for name in ratios if values[name] is None}
    return Reading(values, seconds, missing, dict.fromkeys(ratios, "estimated"))


class CounterSource(ABC):
    """A way of counting. A new one is a class in a file of its own, and a line in `counters.sources`."""

    name: ClassVar[str]
    counts: ClassVar[Mapping[str, str]]
    "Counter → its exactness, one of `data.counters.EXACTNESS`."
    slow: ClassVar[bool] = False
    "Whether it takes several times as long as the command itself."
    slowdown: ClassVar[float] = 1.0
    "About how many times as long, to tell a user what to expect."

    @abstractmethod
    def measure(self, command: Command) -> Reading:
        """Run the command once and count.

        Raises:
            InvalidSetting, MissingPackage: the source cannot be used here; the message says what is missing.
            JobError: the command, or the source, failed.
        """


class WatchingSource(CounterSource):
    """A source that only watches: several of them can watch the same execution."""

    @abstractmethod
    def watcher(self) -> Watcher:
        """A new watcher, for one execution."""

    @abstractmethod
    def reading(self, watcher: Watcher, counted: Mapping[str, float | None], seconds: float) -> Reading:
        """What the watcher counted, as counters."""

    def measure(self, command: Command) -> Reading:
        return watched(command, [self])[0]


def watched(command: Command, sources: list[WatchingSource]) -> list[Reading]:
    """Run a command once, with several sources watching it."""
    watchers = [source.watcher() for source in sources]
    ended: Ended = execute(command, watchers)
    return [
        source.reading(watcher, counted, ended.seconds)
        for source, watcher, counted in zip(sources, watchers, ended.readings, strict=True)
    ]
