"""Power while something runs, by the meters of energy of this machine that may be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from apportion.runtime.observe import Observer

_READ_SECONDS = 0.002
"""Meters are read no more often: asking a driver may take longer than a launch. With 10 ms, watts of a card
whose meter moved after 100 ms were off by a tenth."""


@dataclass
class _Reading:
    """What one meter said since it was first read; only moments at which it moved count."""

    last: float
    moved: list[tuple[float, float]] = field(default_factory=list)
    "Seconds and joules at the first moment and at the latest one."

    def read(self, joules: float) -> None:
        if joules == self.last:
            return
        if joules < self.last:  # Intel's meters begin again at nothing after some hours
            self.moved = []
        self.last = joules
        self.moved = [*self.moved[:1], (time.perf_counter(), joules)]

    @property
    def watts(self) -> float | None:
        if len(self.moved) < 2:
            return None
        (began, first), (ended, latest) = self.moved
        return (latest - first) / (ended - began)


@dataclass(frozen=True)
class Powered:
    """What was drawn while something was repeated."""

    watts: dict[str, float]
    "Meter → mean watts; meters that did not move twice are not there."
    seconds: float
    repeats: int


def drawn(meters: Sequence[Observer], once: Callable[[], object], *, seconds: float) -> Powered:
    """Repeat something for so long, and longer until every meter moved twice; at most four times as long.

    NVIDIA's meters move about ten times a second. What is between two moments at which one moved is divided
    by the time between them, so that a meter that moves seldom is not wrong, only slow.
    """
    readings = {meter.name: _Reading(meter.read()) for meter in meters}
    began, repeats = time.perf_counter(), 0
    read = began
    while True:
        once()
        repeats += 1
        now = time.perf_counter()
        if now - read < _READ_SECONDS:
            continue
        for meter in meters:
            readings[meter.name].read(meter.read())
        read = time.perf_counter()
        spent = read - began
        if spent >= seconds and (
            spent >= 4 * seconds or all(len(each.moved) > 1 for each in readings.values())
        ):
            break
    found = {name: each.watts for name, each in readings.items()}
    return Powered({name: watts for name, watts in found.items() if watts is not None}, spent, repeats)


def idle(meters: Sequence[Observer], *, seconds: float = 1.0) -> Powered:
    """What is drawn while nothing of ours runs."""
    return drawn(meters, lambda: time.sleep(0.005), seconds=seconds)
