"""Everything that is predicted of a launch: times on each device, the curve of cuts, what each line adds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apportion.advise.launch_times import models, timing_model
from apportion.advise.predicted_machine import (
    PredictedMachine,
    learned_machines,
    milliseconds,
    this_machine,
    totals_of,
)
from apportion.advise.queries import Size
from apportion.coexecution.forecast import (
    COALESCED,
    MOVED,
    memory_reach,
    worth_of,
)
from apportion.errors import InvalidSetting
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.instructions import IRModule, read_module
from apportion.program.kernel.launch import LAUNCH, PlannedLaunch
from apportion.program.kernel.signature import Signature, signature_of
from apportion.program.kernel.source_lines import SourceLines, without_locations
from apportion.program.kernel.work import work_by_instruction
from apportion.program.source import Source
from apportion.runtime.base import DeviceInfo
from apportion.runtime.default_arguments import deduced
from apportion.runtime.workload import beside

_DEFAULT_LOCAL: dict[int, tuple[int, ...]] = {1: (64,), 2: (16, 4), 3: (8, 4, 2)}
_GUESSED = LAUNCH.index("guessed")
_USUAL = CompileOptions()


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
            "milliseconds": {where: milliseconds(seconds) for where, seconds in self.seconds.items()},
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
    model: str | None = None,
    compile: CompileOptions | None = None,
) -> Inspection:
    """Everything that is predicted of a launch, without running it.

    Args:
        global_size: work-items in all, in one dimension or in each.
        local_size: work-items in a work-group; the kernel's own where it asks for one, else a usual one.
        kernel: which one; the first where the source has several.
        arguments: `name=value`, as `apportion run` takes them; what is not given is assumed.
        devices: of this machine, with their calibrations; the machines of shipped models come on top.
        model: the name or the folder of a timing model, to ask it alone.
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
    given = beside(source, signature, arguments)
    case = deduced(signature, access, span, given).case
    launch = case.launch(ir, signature.name, text)
    here = [device for device in devices if device.calibration is not None]
    machines = (
        *([this_machine(launch, here, model)] if here else ()),
        *learned_machines(launch, model),
    )
    return Inspection(
        signature.name, kernels, span,
        {argument.name: case.arguments[argument.index] for argument in signature.arguments},
        frozenset(given), case.nbytes, machines,
        tuple(_lines(launch, source.name, devices, models() if model is None else [model])),
        without_locations(ir), tuple(_warnings(launch)),
    )  # fmt: skip


def work_done(launch: PlannedLaunch) -> dict[str, float]:
    """What a whole launch does, as a roofline counts it: `operations`, in multiply-adds, and `bytes` that
    reach memory past the caches."""
    totals = totals_of(launch)
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


def _lines(
    launch: PlannedLaunch, name: str, devices: Sequence[DeviceInfo], asked: Sequence[str]
) -> list[LineCost]:
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
    for model in map(timing_model, asked):
        speeds |= {
            f"{model.name}/{device.device}": device.speeds
            for device in model.devices
            if device.name and device.speeds
        }
    items = launch.span.work_items
    reach = memory_reach(totals_of(launch).__getitem__)
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
    totals = totals_of(launch)
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
