"""What a launch is chosen for: time, energy, both multiplied, or time under a limit of power.

A launch draws what an idle machine draws for as long as it takes, and what each device draws beyond that for
as long as this device works. Both are watts, measured where a meter may be read (`measure.device_power`), or
said by whoever knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apportion.errors import InvalidSetting, UnknownName

NAMES = ("time", "energy", "edp")
_OVER = 1e3
"What a launch above the limit of power counts times its time: one that keeps it is better however slow."


@dataclass(frozen=True)
class PowerModel:
    """What a machine draws, in watts."""

    idle: float
    "While none of the devices works; what no meter counts is not in it."
    active: Mapping[str, float]
    "Device → what it draws beyond that while it works."
    origin: Mapping[str, str]
    "Device → `measured` or `given`."

    def __post_init__(self) -> None:
        for name, watts in self.active.items():
            if not watts >= 0:
                raise InvalidSetting(f"{name} cannot draw {watts} W: give a number that is not below 0")
        if not self.idle >= 0:
            raise InvalidSetting(f"A machine cannot draw {self.idle} W: give a number that is not below 0")

    def joules(self, seconds: float, working: Mapping[str, float]) -> float:
        """What something draws that takes so many seconds.

        Args:
            working: device → for how many of the seconds it works.
        """
        return self.idle * seconds + sum(self.active[name] * each for name, each in working.items())


@dataclass(frozen=True)
class Objective:
    """What is to be least."""

    name: str = "time"
    "`time`, `energy`, `edp` (energy × time), or `power`: time, with no more than so many watts."
    most_watts: float | None = None

    def __post_init__(self) -> None:
        if (self.most_watts is not None) != (self.name == "power"):
            raise InvalidSetting("A limit of power is a number of watts, and only that has one")
        if self.most_watts is not None and not self.most_watts > 0:
            raise InvalidSetting(f"A limit of power must be above 0 W, not {self.most_watts}")
        if self.name not in (*NAMES, "power"):
            raise UnknownName("objective", self.name, [*NAMES, "watts such as 250W"])

    def value(self, seconds: float, joules: float) -> float:
        """What is to be least, of something that takes and draws this much."""
        match self.name:
            case "energy":
                return joules
            case "edp":
                return joules * seconds
            case "power" if self.most_watts is not None and joules > self.most_watts * seconds:
                return _OVER * joules / self.most_watts
        return seconds

    def __str__(self) -> str:
        said = {"time": "time", "energy": "energy", "edp": "energy × time"}
        return said.get(self.name) or f"time within {self.most_watts:g} W"


TIME = Objective()


def objective_of(said: str | float | Objective) -> Objective:
    """The objective that a name stands for, or a number of watts: `250`, `"250W"`.

    Raises:
        UnknownName, InvalidSetting: it stands for none.
    """
    if isinstance(said, Objective):
        return said
    if isinstance(said, str):
        if said in NAMES:
            return Objective(said)
        try:
            said = float(said.strip().removesuffix("W").removesuffix("w"))
        except ValueError:
            raise UnknownName("objective", str(said), [*NAMES, "watts such as 250W"]) from None
    return Objective("power", float(said))
