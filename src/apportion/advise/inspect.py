"""Everything that is predicted of a launch: times on each device, the curve of cuts, what each line adds."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.advise.launch_times import models, predict_times, timing_model
from apportion.advise.learned_policy import fitting_model
from apportion.advise.queries import Size
from apportion.coexecution.cuts import CostModel, best_split, seconds_at
from apportion.coexecution.forecast import (
    COALESCED,
    MOVED,
    ROUGH,
    SHARING_COSTS,
    kernel_parts,
    memory_reach,
    worth_of,
)
from apportion.errors import InvalidSetting
from apportion.learn.times.timing_model import Times, times_by_speeds
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.kernel.access import KernelAccess, accesses_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.instructions import IRModule, read_module
from apportion.program.kernel.launch import LAUNCH, TOTALS, PlannedLaunch
from apportion.program.kernel.signature import Signature, signature_of
from apportion.program.kernel.source_lines import SourceLines, without_locations
from apportion.program.kernel.work import work_by_instruction
from apportion.program.source import Source
from apportion.runtime.base import DeviceInfo
from apportion.runtime.default_arguments import deduced

FOUR_IN_FIVE = 1.2816
"Standard deviations to either side that hold four in five."
WORTH_SHARING = 1.05
"Sharing is called worth it when it is expected to be this many times faster than the best device alone."
_CUTS = 41
_DRAWS = 400
_DEFAULT_LOCAL: dict[int, tuple[int, ...]] = {1: (64,), 2: (16, 4), 3: (8, 4, 2)}
_GUESSED = LAUNCH.index("guessed")
_VALUE = re.compile(r"(\w+)=(-?\d+)")
_USUAL = CompileOptions()


@dataclass(frozen=True)
class PredictedTime:
    """What a launch is predicted to take on one device."""

    device: str
    name: str
    times: Times
    parts: Mapping[str, float]
    "What bounds it → seconds that this alone would take; nothing where the device's speeds are not known."

    @property
    def interval(self) -> tuple[float, float]:
        """Seconds between which the truth lies, four times in five."""
        factor = math.exp(FOUR_IN_FIVE * self.times.spread)
        return self.times.seconds / factor, self.times.seconds * factor

    @property
    def bottleneck(self) -> str | None:
        """What takes longest, of what bounds it."""
        return max(self.parts, key=lambda part: self.parts[part]) if self.parts else None

    def as_json(self) -> dict[str, Any]:
        """Times in milliseconds."""
        low, high = self.interval
        return {
            "device": self.device,
            "name": self.name,
            "milliseconds": 1e3 * self.times.seconds,
            "interval": [1e3 * low, 1e3 * high],
            "fixed": 1e3 * self.times.fixed,
            "rate": 1e3 * self.times.rate,
            "bottleneck": self.bottleneck,
            "parts": {name: 1e3 * seconds for name, seconds in self.parts.items()},
        }


@dataclass(frozen=True)
class PredictedCut:
    """The best division of a launch between devices, and how sure that is."""

    shares: Mapping[str, float]
    seconds: float
    alone: str
    "The device that is expected to be fastest alone."
    alone_seconds: float
    share_interval: tuple[float, float] | None
    "Between which the best share of the first of two devices lies, four times in five."
    chance: float | None
    "How likely this cut is faster than the best device alone; None where only one device works."
    curve: tuple[tuple[float, float, float, float], ...] = ()
    "Share of the first of two devices, seconds, and between which the truth lies four times in five."

    @property
    def gain(self) -> float:
        """How many times faster than the best device alone."""
        return self.alone_seconds / self.seconds

    @property
    def worth_sharing(self) -> bool:
        """Whether sharing is expected to pay."""
        return self.gain >= WORTH_SHARING

    def as_json(self) -> dict[str, Any]:
        """Times in milliseconds."""
        return {
            "shares": {device: round(share, 4) for device, share in self.shares.items()},
            "milliseconds": 1e3 * self.seconds,
            "alone": self.alone,
            "gain": self.gain,
            "worth_sharing": self.worth_sharing,
            "share_interval": self.share_interval,
            "chance": self.chance,
            "curve": [[share, *(1e3 * seconds for seconds in rest)] for share, *rest in self.curve],
        }


@dataclass(frozen=True)
class PredictedMachine:
    """Some devices that could share a launch."""

    name: str
    origin: str
    "Where the times come from, in words."
    devices: tuple[PredictedTime, ...]
    cut: PredictedCut

    def as_json(self) -> dict[str, Any]:
        """The devices and the cut."""
        return {
            "name": self.name,
            "origin": self.origin,
            "devices": [device.as_json() for device in self.devices],
            "cut": self.cut.as_json(),
        }


@dataclass(frozen=True)
class LineCost:
    """What one line of the source adds to a launch."""

    line: int
    "0 for instructions that the compiler ascribes to no line."
    times: float
    "How often a work-item comes by: trip counts of the loops around it."
    counts: Mapping[str, float]
    "What a work-item does in it, in all of those times."
    seconds: Mapping[str, float]
    "Machine/device → seconds that its operations and bytes take there, if nothing overlaps."

    def as_json(self) -> dict[str, Any]:
        """Times in milliseconds."""
        return {
            "line": self.line,
            "times": round(self.times, 3),
            "counts": {name: round(value, 3) for name, value in self.counts.items() if value},
            "milliseconds": {where: 1e3 * seconds for where, seconds in self.seconds.items()},
        }


@dataclass(frozen=True, eq=False)
class Inspection:
    """Everything that is predicted of a launch."""

    kernel: str
    kernels: tuple[str, ...]
    span: NDRange
    arguments: Mapping[str, str]
    "Name → what it is taken to be, as a workload writes it."
    given: frozenset[str]
    "Names of arguments whose values were given, not assumed."
    array_bytes: int
    machines: tuple[PredictedMachine, ...]
    lines: tuple[LineCost, ...]
    ir: str
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """What `apportion inspect --json` prints."""
        return {
            "kernel": self.kernel,
            "kernels": list(self.kernels),
            "global_size": list(self.span.global_size),
            "local_size": list(self.span.local_size),
            "arguments": [
                {"name": name, "is": word, "assumed": name not in self.given}
                for name, word in self.arguments.items()
            ],
            "bytes": self.array_bytes,
            "machines": [machine.as_json() for machine in self.machines],
            "lines": [line.as_json() for line in self.lines],
            "warnings": list(self.warnings),
            "ir": self.ir,
        }


def inspect(
    source: Source,
    *,
    global_size: Size,
    local_size: Size | None = None,
    kernel: str | None = None,
    arguments: Sequence[str] = (),
    devices: Sequence[DeviceInfo] = (),
    compile: CompileOptions | None = None,
) -> Inspection:
    """Everything that is predicted of a launch, without running it.

    Args:
        global_size: work-items in all, in one dimension or in each.
        local_size: work-items in a work-group; the kernel's own where it asks for one, else a usual one.
        kernel: which one; the first where the source has several.
        arguments: integers passed by value, as `n=4096`; what is not given is assumed.
        devices: of this machine, with their calibrations; the machines of shipped models come on top.
        compile: how OpenCL C is compiled.

    Raises:
        InvalidSetting: an impossible size, or an argument that cannot be made up.
        UnknownName: no such kernel or argument.
        MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    ir = ir_of(source, replace(compile or _USUAL, line_tables=source.language != "llvm"))
    text = str(source.text) if source.language == "opencl" else ""
    kernels = tuple(kernels_of(ir))
    if not kernels:
        raise InvalidSetting(f"{source.name} has no OpenCL kernel, so there is no launch to predict")
    signature = signature_of(ir, kernel or kernels[0], text)
    span = _span(signature, global_size, local_size)
    access = accesses_of(ir, text)[signature.name]
    given = _values(arguments, signature)
    case = deduced(signature, access, span, {name: str(number) for name, number in given.items()}).case
    launch = case.launch(ir, signature.name, text)
    machines = tuple(_machines(launch, access, devices))
    return Inspection(
        signature.name, kernels, span,
        {argument.name: case.arguments[argument.index] for argument in signature.arguments},
        frozenset(given), case.nbytes, machines,
        tuple(_lines(launch, source.name, devices)), without_locations(ir), tuple(_warnings(launch)),
    )  # fmt: skip


def work_done(launch: PlannedLaunch) -> dict[str, float]:
    """What a whole launch does, as a roofline counts it: `operations`, in multiply-adds, and `bytes` that
    reach memory past the caches."""
    totals = _totals(launch)
    worth = {name: each for name, each in worth_of({}).items() if name != "groups"}
    moved = sum(each * totals[f"all {name}"] for name, each in MOVED.items())
    return {
        "operations": sum(each * totals[f"all {name}"] for name, each in worth.items()),
        "bytes": memory_reach(totals.__getitem__) * moved,
    }


def _span(signature: Signature, global_size: Size, local_size: Size | None) -> NDRange:
    whole = global_size if isinstance(global_size, tuple) else (global_size,)
    if local_size is not None:
        return NDRange(whole, local_size if isinstance(local_size, tuple) else (local_size,))
    if signature.required_local_size is not None:
        return NDRange(whole, signature.required_local_size[: len(whole)])
    usual = zip(whole, _DEFAULT_LOCAL[len(whole)], strict=True)
    return NDRange(whole, tuple(math.gcd(size, wanted) for size, wanted in usual))


def _values(arguments: Sequence[str], signature: Signature) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in arguments:
        word = _VALUE.fullmatch(text.strip())
        if word is None:
            raise InvalidSetting(f"Write an argument as name=integer, for example n=4096, not {text!r}")
        argument = signature.argument(word[1])
        if (
            argument.is_pointer
            or argument.scalar_type is None
            or np.dtype(argument.scalar_type).kind not in "iu"
        ):
            raise InvalidSetting(f"{word[1]} is {argument.type}: only integers passed by value can be given")
        limits = np.iinfo(argument.scalar_type)
        value = int(word[2])
        if not limits.min <= value <= limits.max:
            raise InvalidSetting(f"{word[1]} is {argument.type} and cannot be {value}")
        found[word[1]] = value
    return found


def _machines(
    launch: PlannedLaunch, access: KernelAccess, devices: Sequence[DeviceInfo]
) -> list[PredictedMachine]:
    sharing = SHARING_COSTS
    found = []
    here = [device for device in devices if device.calibration is not None]
    name = fitting_model(here) if here else None
    if here:
        times = predict_times(launch, here, name) if name else {d.id: _by_speeds(launch, d) for d in here}
        origin = (
            f"the timing model {name}, corrected for this machine" if name
            else "measured speeds of these devices, and what the kernel is made of"
        )  # fmt: skip
        told = tuple(
            PredictedTime(
                device.id,
                device.name,
                times[device.id],
                _parts(launch, device.speeds(), device.shares_memory),
            )
            for device in here
        )
        found.append(PredictedMachine("this machine", origin, told, _cut(told, sharing)))
    for name in models():
        model = timing_model(name)
        said = model.predict_all(launch.row(), launch.totals())
        told = tuple(
            PredictedTime(
                device.device, device.name, said[device.device],
                _parts(launch, device.speeds, device.device == "cpu") if device.speeds else {},
            )
            for device in model.devices
            if device.name
        )  # fmt: skip
        origin = f"the timing model {name}, learned from kernels measured there"
        found.append(PredictedMachine(name, origin, told, _cut(told, sharing)))
    return found


def _by_speeds(launch: PlannedLaunch, device: DeviceInfo) -> Times:
    fixed, rate, waiting = times_by_speeds(
        launch.row()[None, :], launch.totals()[None, :], device.speeds(), copies=not device.shares_memory
    )
    return Times(float(fixed[0]), float(rate[0] + waiting[0]), math.log(ROUGH) / FOUR_IN_FIVE)


def _parts(launch: PlannedLaunch, speeds: Mapping[str, float], shares_memory: bool) -> dict[str, float]:
    totals = _totals(launch)
    found = kernel_parts(totals.__getitem__, speeds)
    if not shares_memory:
        up, down = totals["bytes up"] / speeds["to_device"], totals["bytes down"] / speeds["from_device"]
        found["copies"] = up + down
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def _totals(launch: PlannedLaunch) -> dict[str, float]:
    return dict(zip(TOTALS, launch.totals().tolist(), strict=True))


def _cut(devices: Sequence[PredictedTime], sharing_seconds: float) -> PredictedCut:
    costs = {one.device: CostModel(one.times.fixed, max(one.times.rate, 1e-12)) for one in devices}
    split, seconds = best_split(costs, sharing_seconds=sharing_seconds)
    alone = min(costs, key=lambda name: costs[name].seconds(1.0))
    alone_seconds = costs[alone].seconds(1.0)
    if len(devices) != 2:
        return PredictedCut(split.shares, seconds, alone, alone_seconds, None, None)
    first, second = devices
    random = np.random.default_rng(0)
    off = np.exp(random.standard_normal((_DRAWS, 2)) * [first.times.spread, second.times.spread])
    fixed = off * [first.times.fixed, second.times.fixed]
    rate = off * [max(first.times.rate, 1e-12), max(second.times.rate, 1e-12)]
    low, high = np.quantile(
        [_best_share(f, r) for f, r in zip(fixed, rate, strict=True)], [0.1, 0.9]
    ).tolist()
    share = split.shares[first.device]
    chance = None
    if 0 < share < 1:
        shared = seconds_at(np.full(_DRAWS, share), fixed, rate) + sharing_seconds
        best = (fixed + rate)[:, 0 if alone == first.device else 1]
        chance = float((shared < best).mean())
    return PredictedCut(
        split.shares, seconds, alone, alone_seconds, (low, high), chance,
        tuple(_curve(first.times, second.times, sharing_seconds)),
    )  # fmt: skip


def _best_share(fixed: NDArray[np.float64], rate: NDArray[np.float64]) -> float:
    costs = {
        "first": CostModel(float(fixed[0]), float(rate[0])),
        "second": CostModel(float(fixed[1]), float(rate[1])),
    }
    return best_split(costs)[0].shares["first"]


def _curve(first: Times, second: Times, sharing_seconds: float) -> list[tuple[float, float, float, float]]:
    factors = [math.exp(FOUR_IN_FIVE * times.spread) for times in (first, second)]
    found = []
    for share in np.linspace(0, 1, _CUTS).tolist():
        one = first.fixed + first.rate * share if share > 0 else 0.0
        other = second.fixed + second.rate * (1 - share) if share < 1 else 0.0
        more = sharing_seconds if 0 < share < 1 else 0.0
        found.append(
            (
                share, max(one, other) + more, max(one / factors[0], other / factors[1]) + more,
                max(one * factors[0], other * factors[1]) + more,
            )
        )  # fmt: skip
    return found


def _lines(launch: PlannedLaunch, name: str, devices: Sequence[DeviceInfo]) -> list[LineCost]:
    """What each line adds: operations and bytes of its instructions, as often as they run."""
    module: IRModule = read_module(launch.ir)
    places = SourceLines.of(launch.ir, name)
    counted = work_by_instruction(module, launch.kernel, launch.span, launch.scalars, launch.contents)
    counts: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    times: dict[int, float] = defaultdict(float)
    for instruction, added in counted:
        line = places.line_of(instruction.text)
        times[line] = max(times[line], added.get("instructions", 0.0))
        for what, value in added.items():
            counts[line][what] += value
    speeds: dict[str, Mapping[str, float]] = {
        f"this machine/{device.id}": device.speeds() for device in devices if device.calibration
    }
    for model in models():
        speeds |= {
            f"{model}/{device.device}": device.speeds
            for device in timing_model(model).devices
            if device.name and device.speeds
        }
    items = launch.span.work_items
    reach = memory_reach(_totals(launch).__getitem__)
    return [
        LineCost(
            line, times[line], dict(found),
            {where: items * _seconds(found, each, reach) for where, each in speeds.items()},
        )
        for line, found in sorted(counts.items())
    ]  # fmt: skip


def _seconds(counts: Mapping[str, float], speeds: Mapping[str, float], reach: float) -> float:
    operations = sum(each * counts.get(name, 0.0) for name, each in worth_of(speeds).items())
    moved = sum(each * counts.get(name, 0.0) for name, each in MOVED.items())
    return operations / speeds["arithmetic"] + reach * moved / speeds["memory"]


def _warnings(launch: PlannedLaunch) -> list[str]:
    totals = _totals(launch)
    far = sum(totals[f"all {name}"] for name in MOVED if name not in COALESCED and name != "local bytes")
    near = sum(totals[f"all {name}"] for name in COALESCED)
    found = []
    if far and far >= near:
        found.append(
            "most bytes are read or written with a stride between neighbouring work-items, or where data says"
        )
    if launch.row()[_GUESSED] > 0.5:
        found.append("most instructions stand in loops whose trip count only data tells; it was guessed")
    return found
