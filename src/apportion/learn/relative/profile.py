"""Profile: what is known about one run before it is asked how fast it is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from apportion.errors import InvalidSetting


@dataclass(frozen=True)
class Profile:
    """What is known about one run."""

    name: str
    counters: Mapping[str, float | None]
    seconds: Mapping[str, float] = field(default_factory=dict)
    "Its time on systems where it was run, if any."

    def __post_init__(self) -> None:
        for system, value in self.seconds.items():
            if not (value > 0 and math.isfinite(value)):
                raise InvalidSetting(f"{self.name}: the time on {system} must be positive, not {value}")
