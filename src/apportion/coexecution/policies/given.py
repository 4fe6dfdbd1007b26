"""Splits that the user gives: everything to one device, or a share of the first one."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.coexecution.observations import Choice, Observations
from apportion.coexecution.policies.base import Policy, Situation
from apportion.errors import InvalidSetting
from apportion.runtime.split import Split


@dataclass(frozen=True)
class DevicePolicy(Policy):
    """Everything to one device."""

    device: str
    insists = True

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The device, whatever is expected of it."""
        split = Split({name: float(name == self.device) for name in situation.names})
        return Choice(split, None, f"the policy {self.device} was asked for")


@dataclass(frozen=True)
class SharePolicy(Policy):
    """A share for the first device; the others divide the rest evenly."""

    share: float
    insists = True

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidSetting(f"A share must lie between 0 and 1, not {self.share:g}")

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The share, whatever is expected."""
        first, *others = situation.names
        split = Split.alone(first)
        if others:
            split = Split({first: self.share, **dict.fromkeys(others, (1 - self.share) / len(others))})
        return Choice(split, None, f"the policy {self.share:g} was asked for")
