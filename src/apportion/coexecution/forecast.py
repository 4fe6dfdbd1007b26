"""What a launch will take on each device, before it has run: what is asked, and an answer from speeds.

A learned model answers better (`apportion.advise.learned_policy`); it is handed in as a `Predictor`. Where
none fits the devices, the forecast from here divides what the kernel is made of by the calibrated speeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apportion.coexecution.cuts import CostModel, prior
from apportion.errors import ApportionError, InvalidSetting
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.kernel.access import KernelAccess
from apportion.program.kernel.launch import TOTALS, PlannedLaunch
from apportion.program.kernel.launch_values import Contents
from apportion.program.kernel.work import SERIAL
from apportion.program.source import Source
from apportion.runtime.base import Calibration, DeviceInfo
from apportion.runtime.plan import ArrayPlace, Plan

FOUR_IN_FIVE = 1.2816
"Standard deviations to either side of the mean that hold four in five values of a normal distribution."
WORTH = {
    "float operations": 1.0, "double operations": 2.0, "integer operations": 0.5, "divisions": 4.0,
    "long divisions": 8.0,
    "roots": 4.0, "powers": 16.0, "angles": 16.0, "double functions": 32.0, "branches": 1.0,
    "local atomics": 8.0, "global atomics": 32.0, "private accesses": 0.5, "barriers": 8.0,
    "builtins": 1.0,
}  # fmt: skip
"What a work-item does → multiply-adds that it is worth, about, on a device that was not asked."
MOVED = {
    "coalesced bytes": 1.0, "strided bytes": 4.0, "scattered bytes": 4.0, "broadcast bytes": 0.1,
    "coalesced bytes stored": 1.0, "other bytes stored": 4.0, "local bytes": 0.1,
}  # fmt: skip
"Bytes that a work-item reads and writes → bytes that memory brings for them, about."
COALESCED = frozenset(("coalesced bytes", "broadcast bytes", "coalesced bytes stored"))
"Of those, the ones whose neighbours a work-item's neighbours read or write."
_TOTAL = {"groups": "work-groups"}
"What `program.kernel.launch.TOTALS` calls it, where that is not `all …`."


@dataclass(frozen=True)
class SpeedSettings:
    """The numbers of forecasts from calibrated speeds."""

    rough: float = 5.0
    """The spread of such a forecast, a factor: the truth lay within it for four in five kernels of the suite
    on two PoCL devices. What operations are worth and what caches keep is guessed, and so are the trip counts
    of loops that data ends."""
    vague: float = 8.0
    "The spread of a forecast from descriptions alone, a factor. Assumed."
    cached: float = 0.125
    "The part of the bytes read and written again that reaches memory past the caches. Assumed."
    merged_per_second: float = 2e9
    "Bytes per second that one thread compares and merges. Assumed."
    sharing: float = 4e-4
    """Seconds that a shared launch needs on top, whatever it does: two devices are started, fed and waited
    for. Chosen on the curves of a run before the one that is reported."""

    def __post_init__(self) -> None:
        if not (self.rough >= 1 and self.vague >= 1):
            raise InvalidSetting(f"rough and vague are factors of at least 1, not {self}")
        if not (0 <= self.cached <= 1 and self.merged_per_second > 0 and self.sharing >= 0):
            raise InvalidSetting(
                f"cached lies between 0 and 1, merged_per_second above 0, sharing not below 0: not {self}"
            )


SPEEDS = SpeedSettings()


@dataclass(frozen=True, eq=False)
class LaunchQuery:
    """A kernel with its range and arguments: what there is to know of a launch before it runs."""

    source: Source
    kernel: str
    compile: CompileOptions
    access: KernelAccess
    plan: Plan
    "Of the whole range, with the merges that hold; without parts."
    contents: Mapping[int, Contents] = field(default_factory=dict)
    "Argument number → what it holds, for arrays of integers."

    @property
    def work_items(self) -> int:
        """Work-items of the whole range."""
        return self.plan.span.work_items

    @property
    def local_size(self) -> int:
        """Work-items of a work-group."""
        return math.prod(self.plan.span.local_size)

    @property
    def groups(self) -> int:
        """Work-groups along the dimension that is cut."""
        return self.plan.span.groups[self.plan.dimension]

    @property
    def arrays(self) -> list[ArrayPlace]:
        """The arguments that are arrays."""
        return [place for place in self.plan.arguments if isinstance(place, ArrayPlace)]

    @property
    def bytes_moved(self) -> int:
        """Bytes of all arrays, there and back."""
        return sum(self.transfers(1.0))

    def transfers(self, share: float) -> tuple[int, int]:
        """Bytes to and from a device with its own memory that does the first `share` of the work."""
        part = (0, max(1, round(share * self.groups)))
        there = back = 0
        for place in self.arrays:
            read = self.plan.touched(place, *part, write=False)
            there += place.nbytes if read is None else read[1] - read[0]
            if not place.written:
                continue
            wrote = self.plan.touched(place, *part, write=True) if place.merge == "slice" else None
            back += place.nbytes if wrote is None else wrote[1] - wrote[0]
        return there, back


@dataclass(frozen=True, eq=False)
class Forecast:
    """What each device is expected to take for a launch."""

    models: Mapping[str, CostModel]
    "Device → its seconds as fixed + rate × share, transfers included."
    spread: float
    "The truth lies between the forecast over this and the forecast times this, four times in five."
    origin: str
    "What it was learned or worked out from, in words."
    sharing_seconds: float = 0.0
    "What it costs on top when the work is shared."
    doubt: float | None = None
    "The standard deviation of the log of the factor between two devices, where it is known."
    spreads: Mapping[str, float] = field(default_factory=dict)
    "Device → `spread` of its own, where that is known; the largest of them is `spread` then."

    def __post_init__(self) -> None:
        if not self.models:
            raise InvalidSetting("A forecast needs at least one device")
        if not self.spread >= 1:
            raise InvalidSetting(f"A forecast's spread is a factor of at least 1, not {self.spread}")


Predictor = Callable[[LaunchQuery, Sequence[DeviceInfo]], Forecast]
"What answers for a launch that has not run yet."


def from_speeds(query: LaunchQuery, devices: Sequence[DeviceInfo]) -> Forecast:
    """A forecast from what the kernel is made of and how fast each device was measured to be.

    Without the calibration of every device it comes from descriptions, and is good for shares only.
    """
    calibrated = {device.id: device.calibration for device in devices if device.calibration is not None}
    if len(calibrated) < len(devices):
        return Forecast(prior(devices), SPEEDS.vague, "the devices' descriptions", 0.0)
    totals = _totals(query)
    models = {device.id: _model(query, device, calibrated[device.id], totals) for device in devices}
    return Forecast(
        models, SPEEDS.rough, "calibrated speeds and what the kernel is made of",
        sharing_seconds(query, devices),
    )  # fmt: skip


def kernel_seconds(query: LaunchQuery, device: DeviceInfo) -> float | None:
    """What a kernel takes by what a device was calibrated to do, without any copies; None without that."""
    if device.calibration is None:
        return None
    return float(sum(kernel_times(_totals(query).__getitem__, device.calibration.speeds())))


def sharing_seconds(query: LaunchQuery, devices: Sequence[DeviceInfo]) -> float:
    """What sharing a launch costs on top of its devices' times."""
    merged = sum(place.nbytes for place in query.arrays if place.written and place.merge != "slice")
    return SPEEDS.sharing + merged * len(devices) / SPEEDS.merged_per_second


def _model(
    query: LaunchQuery, device: DeviceInfo, speeds: Calibration, totals: Mapping[str, float]
) -> CostModel:
    fixed, rate, waiting = kernel_times(totals.__getitem__, speeds.speeds())
    if not device.shares_memory:
        whole, half = (
            there / speeds.to_device + back / speeds.from_device
            for there, back in (query.transfers(1.0), query.transfers(0.5))
        )
        # What a part needs whole, such as a vector that every work-item reads, does not shrink with the part.
        grows = min(whole, max(0.0, 2 * (whole - half)))
        fixed, rate = fixed + whole - grows, rate + grows
    return CostModel(float(fixed), max(float(rate + waiting), 1e-9))


def kernel_times(total: Callable[[str], Any], speeds: Mapping[str, float]) -> tuple[Any, Any, Any]:
    """(fixed, rate, waiting) in seconds of a kernel without copies, for one launch or for an array of them.

    It takes what its operations take or what its memory does, and what its work-groups wait for each other.
    What the longest of its work-items takes beyond that does not shrink with the share: one of the parts has
    that work-item.

    Args:
        total: name of `program.kernel.launch.TOTALS` → what the launch has of it.
        speeds: `Calibration.speeds`.
    """

    def sum_over(worth: Mapping[str, float], names: str = "all {}") -> Any:
        return sum(each * total(_TOTAL.get(name, names.format(name))) for name, each in worth.items())

    moved = sum_over(MOVED)
    moved = moved - (1 - SPEEDS.cached) * np.maximum(0.0, moved - total("bytes of arrays"))
    operations = np.maximum(sum_over(worth_of(speeds)), 1.0) / speeds["arithmetic"]
    rate = np.maximum(operations, moved / speeds["memory"])
    waiting = speeds.get("latency waits", 0.0) * total("all waits")
    longest = sum_over({name: speeds.get(f"latency {name}", 0.0) for name in SERIAL}, "longest {}")
    fixed = speeds["launch_seconds"] + np.maximum(0.0, longest - rate)
    return fixed, np.maximum(rate, 1e-9), waiting


def kernel_parts(total: Callable[[str], Any], speeds: Mapping[str, float]) -> dict[str, float]:
    """What bounds a kernel → the seconds that it would take if nothing else did; takes what `kernel_times`
    takes."""
    moved = {name: each * float(total(_TOTAL.get(name, f"all {name}"))) for name, each in MOVED.items()}
    whole = sum(moved.values())
    reach = memory_reach(total)
    near = sum(nbytes for name, nbytes in moved.items() if name in COALESCED)
    local = moved["local bytes"]
    fixed, _, waiting = kernel_times(total, speeds)
    operations = sum(
        each * float(total(_TOTAL.get(name, f"all {name}"))) for name, each in worth_of(speeds).items()
    )
    return {
        "arithmetic": operations / speeds["arithmetic"],
        "coalesced memory": reach * near / speeds["memory"],
        "strided memory": reach * (whole - near - local) / speeds["memory"],
        "local memory": reach * local / speeds["memory"],
        "waiting for other work-groups": float(waiting),
        "launch and the longest work-item": float(fixed),
    }


def memory_reach(total: Callable[[str], Any]) -> float:
    """The part of the bytes that work-items read and write which is taken to reach memory past the caches."""
    whole = sum(each * float(total(_TOTAL.get(name, f"all {name}"))) for name, each in MOVED.items())
    cached = max(0.0, whole - float(total("bytes of arrays")))
    return (whole - (1 - SPEEDS.cached) * cached) / whole if whole else 0.0


def worth_of(speeds: Mapping[str, float]) -> dict[str, float]:
    """Operation → multiply-adds that one is worth on a device, and `groups` for starting a work-group.

    Args:
        speeds: `Calibration.speeds`.
    """
    return {name: speeds.get(f"worth {name}", each) for name, each in {**WORTH, "groups": 0.0}.items()}


def _totals(query: LaunchQuery) -> Mapping[str, float]:
    """What the whole range consists of: what a model's numbers are made of, or what arrays alone tell."""
    try:
        return dict(zip(TOTALS, launch_of(query).totals().tolist(), strict=True))
    except ApportionError:  # the drivers' compilers may know better than ours
        arrays = float(sum(place.nbytes for place in query.arrays))
        known = {
            "all float operations": float(query.work_items), "all coalesced bytes": arrays,
            "bytes of arrays": arrays, "work-groups": float(math.prod(query.plan.span.groups)),
        }  # fmt: skip
        return {name: known.get(name, 0.0) for name in TOTALS}


def launch_of(query: LaunchQuery) -> PlannedLaunch:
    """The launch that a query is about, as models see it.

    Raises:
        MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    plan = query.plan
    return PlannedLaunch(
        ir_of(query.source, query.compile), query.kernel, plan.span,
        {place: one.nbytes for place, one in enumerate(plan.arguments) if isinstance(one, ArrayPlace)},
        plan.scalars, str(query.source.text), query.contents,
    )  # fmt: skip
