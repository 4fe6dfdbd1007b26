"""Which drivers a backend is asked to offer."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.errors import InvalidSetting


@dataclass(frozen=True)
class DriverOptions:
    """Which drivers to offer."""

    pocl_instances: int | None = None
    "Independent PoCL devices; None: two where there is no other device, else one."
    threads: int | None = None
    "Threads of each CPU device; None: the processors, shared evenly between the PoCL instances."
    vendors: bool = True
    "Whether drivers other than PoCL's are looked for."
    copying: tuple[str, ...] = ()
    "Ids of CPU devices that get copies of all arrays, as a device with its own memory does."

    def __post_init__(self) -> None:
        if self.pocl_instances is not None and not 1 <= self.pocl_instances <= 9:
            raise InvalidSetting(f"pocl_instances must lie between 1 and 9, not {self.pocl_instances}")
        if self.threads is not None and self.threads < 1:
            raise InvalidSetting(f"threads must be at least 1, not {self.threads}")


DEFAULT_DRIVERS = DriverOptions()
