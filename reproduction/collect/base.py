"""What a collector is told, and what it says of each graph."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from apportion.errors import InvalidSetting

T = TypeVar("T")


@dataclass(frozen=True)
class CollectOptions:
    """How much is measured, and how."""

    graphs: tuple[str, ...] = ()
    "Families, or whole names of graphs; all when empty."
    configurations: int = 120
    "Of each graph, at most."
    shapes: int | None = None
    "Of each family, the first so many; None takes all."
    rounds: int = 12
    "How often each configuration is measured, all of them in each round, in an order drawn anew."
    seconds: float = 3.0
    "What the rounds of one graph may take; at least four are made."
    seed: int = 0
    workers: int | None = None
    "Processes that compile; None takes one for each processor."
    compile_seconds: float | None = None
    "What compiling may take in all; configurations that were not compiled by then are left out."
    measure_seconds: float | None = None
    "What measuring may take in all; no graph is begun after that, and the same command goes on."

    def __post_init__(self) -> None:
        for name, least in (("configurations", 2), ("rounds", 2)):
            if getattr(self, name) < least:
                raise InvalidSetting(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("shapes", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {value}")
        if not self.seconds > 0:
            raise InvalidSetting(f"seconds must be positive, not {self.seconds}")

    def wants(self, family: str, graph: str) -> bool:
        """Whether a graph is to be measured."""
        return not self.graphs or family in self.graphs or graph in self.graphs

    def in_time(self, graphs: Iterable[T], start: float | None = None) -> Iterator[T]:
        """The graphs that may still be begun when they are asked for: time runs from `start`, or from now."""
        start = time.monotonic() if start is None else start
        for graph in graphs:
            if self.measure_seconds is not None and time.monotonic() - start > self.measure_seconds:
                return
            yield graph


@dataclass(frozen=True)
class Collected:
    """What became of one graph."""

    name: str
    configurations: int
    "That ran and were right."
    failed: int
    rounds: int
    seconds: float
    failure: str = ""
    "Why there is nothing; else empty."
