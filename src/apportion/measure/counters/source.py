"""Source: one way of counting what a command does, and what it says when it cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from apportion.measure.counters.command import Command, Ended, Watcher, execute


@dataclass(frozen=True)
class Problem:
    """Why a counter is missing, and what can be done about it."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class Reading:
    """What a source counted in one execution."""

    values: Mapping[str, float | None]
    seconds: float
    "How long the command took under this source."
    problems: Mapping[str, Problem] = field(default_factory=dict)
    "Counter → why it is missing."


class Source(ABC):
    """A way of counting. A new one is a class in a file of its own, and a line in `counters.sources`."""

    name: ClassVar[str]
    counts: ClassVar[Mapping[str, str]]
    "Counter → its exactness, one of `data.counters.EXACTNESS`."
    slow: ClassVar[bool] = False
    "Whether it takes several times as long as the command itself."

    @abstractmethod
    def measure(self, command: Command) -> Reading:
        """Run the command once and count.

        Raises:
            InvalidSetting, MissingPackage: the source cannot be used here; the message says what is missing.
            JobError: the command, or the source, failed.
        """


class WatchingSource(Source):
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
