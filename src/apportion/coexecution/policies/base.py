"""The contract of policies: from what is expected of a launch and what earlier ones took, a choice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import Choice, Observations
from apportion.runtime.base import DeviceInfo


@dataclass(frozen=True)
class Situation:
    """The launch to be decided about."""

    devices: tuple[DeviceInfo, ...]
    groups: int
    "Work-groups along the dimension that is cut: a part has one at least."
    ask: Callable[[], Forecast]
    "Gives the forecast; policies that need none do not ask, because devices may be calibrated for it."
    obstacle: str = ""
    "Why the work cannot be shared; empty where it can."

    @cached_property
    def forecast(self) -> Forecast:
        """What each device is expected to take; asked for when it is first read."""
        return self.ask()

    @property
    def names(self) -> list[str]:
        """The ids of the devices, in the order of their parts."""
        return [device.id for device in self.devices]


class Policy(ABC):
    """Chooses who gets how much of a launch. What it has to remember is in the observations, not in
    itself."""

    learns: ClassVar[bool] = False
    "Whether earlier launches change what it chooses."
    insists: ClassVar[bool] = False
    "Whether a launch fails, instead of using one device, where its split cannot be had."

    @abstractmethod
    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The split for the next launch.

        Args:
            seen: what earlier launches of the same kernel at the same size took; nothing before the first.
        """

    def stands(self, seen: Observations, choice: Choice, seconds: float) -> bool:
        """Whether `choice` holds for the next launch too, after one under it that took so many seconds and
        was noted in `seen`. Where it does, `choose` is not called again."""
        return not self.learns
