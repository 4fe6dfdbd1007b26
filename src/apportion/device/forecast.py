"""What a launch will take on each device, before it has run: what is asked, and an answer from speeds.

A learned model answers better (`apportion.advise.policy`); it is handed in as a `Predictor`. Where none fits
the devices there is the answer from here: what the kernel is made of, over the speeds that calibrating
measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apportion.device.base import Calibration, DeviceInfo
from apportion.device.plan import ArrayPlace, Plan
from apportion.device.policies import CostModel, prior
from apportion.errors import ApportionError, InvalidSetting
from apportion.program.access import KernelAccess
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.instructions import read_module
from apportion.program.source import Source
from apportion.program.work import Contents, work_of

ROUGH = 5.0
"""The spread of forecasts from calibrated speeds: it held four in five kernels of the suite on two PoCL
devices. What operations are worth and what caches keep is guessed, and so are the turns of loops that data
ends."""
VAGUE = 8.0
"The spread of forecasts from descriptions alone."
WORTH = {
    "float operations": 1.0, "double operations": 2.0, "integer operations": 0.5, "divisions": 4.0,
    "roots": 4.0, "powers": 16.0, "angles": 16.0, "double functions": 32.0, "branches": 1.0,
    "local atomics": 8.0, "global atomics": 32.0, "private accesses": 0.5, "barriers": 8.0,
}  # fmt: skip
"What a work-item does → multiply-adds that it is worth, about, on a device that was not asked."
MOVED = {
    "bytes together": 1.0, "bytes apart": 4.0, "bytes anywhere": 4.0, "bytes the same": 0.1,
    "stored bytes together": 1.0, "stored bytes elsewhere": 4.0, "local bytes": 0.1,
}  # fmt: skip
"Bytes that a work-item reads and writes → bytes that memory brings for them, about."
CACHED = 0.125
"The part of what is moved beyond the arrays themselves that is taken to reach memory."
_MERGED_PER_SECOND = 2e9
"Bytes that one thread compares and merges."


@dataclass(frozen=True, eq=False)
class Enquiry:
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
    "What merging costs when the work is shared."
    doubt: float | None = None
    "The standard deviation of the log of the factor between two devices, where it is known."

    def __post_init__(self) -> None:
        if not self.models:
            raise InvalidSetting("A forecast needs at least one device")
        if not self.spread >= 1:
            raise InvalidSetting(f"A forecast's spread is a factor of at least 1, not {self.spread}")


Predictor = Callable[[Enquiry, Sequence[DeviceInfo]], Forecast]
"What answers for a launch that has not run yet."


def from_speeds(enquiry: Enquiry, devices: Sequence[DeviceInfo]) -> Forecast:
    """A forecast from what the kernel is made of and how fast each device was measured to be.

    Without the calibration of every device it comes from descriptions, and is good for shares only.
    """
    calibrated = {device.id: device.calibration for device in devices if device.calibration is not None}
    merged = sum(p.nbytes for p in enquiry.arrays if p.written and p.merge != "slice")
    sharing = merged * len(devices) / _MERGED_PER_SECOND
    if len(calibrated) < len(devices):
        return Forecast(prior(devices), VAGUE, "the devices' descriptions", 0.0)
    counts, moved = _work(enquiry)
    models = {device.id: _model(enquiry, device, calibrated[device.id], counts, moved) for device in devices}
    return Forecast(models, ROUGH, "calibrated speeds and what the kernel is made of", sharing)


def _model(
    enquiry: Enquiry, device: DeviceInfo, speeds: Calibration, counts: Mapping[str, float], moved: float
) -> CostModel:
    operations = sum(each * counts.get(name, 0.0) for name, each in worth_of(speeds.speeds()).items())
    operations = max(operations, 1.0)
    kernel = max(operations / speeds.arithmetic, moved / speeds.memory)
    fixed = speeds.launch_seconds
    if not device.shares_memory:
        whole, half = (
            there / speeds.to_device + back / speeds.from_device
            for there, back in (enquiry.transfers(1.0), enquiry.transfers(0.5))
        )
        # What a part needs whole, such as a vector that every work-item reads, does not shrink with the part.
        grows = min(whole, max(0.0, 2 * (whole - half)))
        fixed, kernel = fixed + whole - grows, kernel + grows
    return CostModel(fixed, max(kernel, 1e-9))


def worth_of(speeds: Mapping[str, float]) -> dict[str, float]:
    """Operation → multiply-adds that one is worth on a device, and `groups` for starting a work-group.

    Args:
        speeds: `Calibration.speeds`.
    """
    return {name: speeds.get(f"worth {name}", each) for name, each in {**WORTH, "groups": 0.0}.items()}


def _work(enquiry: Enquiry) -> tuple[dict[str, float], float]:
    """What the whole range consists of, operation by operation, and bytes of memory, about."""
    items, arrays = enquiry.work_items, sum(place.nbytes for place in enquiry.arrays)
    plan = enquiry.plan
    groups = {"groups": float(math.prod(plan.span.groups))}
    try:
        module = read_module(ir_of(enquiry.source, enquiry.compile))
        each = work_of(module, enquiry.kernel, plan.span, plan.scalars, enquiry.contents).counts
    except ApportionError:  # the drivers' compilers may know better than ours
        return {"float operations": float(items), **groups}, float(arrays)
    counts = {name: items * each.get(name, 0.0) for name in WORTH}
    moved = items * sum(worth * each.get(name, 0.0) for name, worth in MOVED.items())
    beyond = max(0.0, moved - arrays)
    return counts | groups, moved - (1 - CACHED) * beyond
