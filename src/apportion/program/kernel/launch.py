"""Numbers that describe a launch: its kernel's code, how much it does, and the bytes that must be moved
for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from apportion.program.kernel.access import ArgumentAccess, KernelAccess, accesses_of
from apportion.program.kernel.bounds import NDRange, bytes_touched
from apportion.program.kernel.features import FEATURES, vector_of
from apportion.program.kernel.instructions import IRModule, read_module
from apportion.program.kernel.launch_values import Contents
from apportion.program.kernel.work import SERIAL, WORK, Work, work_of
from apportion.program.llvm import GraphOptions, graph_of_ir

TOTALS = (
    "launch", "work-items", "work-groups", *(f"all {name}" for name in WORK), "bytes up", "bytes down",
    "bytes of arrays", "group barriers", "copies", *(f"longest {name}" for name in SERIAL),
)  # fmt: skip
"""What a launch consists of, in sums over all work-items, and what the longest work-item consists of: a
device's time is about a sum over these."""
_LOGGED = TOTALS[1 : -len(SERIAL)]
_SHAPE = (
    "log work-items",
    "log work-group size",
    "dimensions",
    "log work-groups",
    "sliced up",
    "sliced down",
)
LAUNCH = (
    *FEATURES, *(f"each {name}" for name in WORK), "guessed", "divergent",
    *(f"log {name}" for name in _LOGGED), *_SHAPE, "operations per byte", "special per operation",
)  # fmt: skip
"Names of what `row` gives, in order."


@dataclass(frozen=True)
class PlannedLaunch:
    """A kernel about to be launched."""

    ir: str
    "LLVM IR for spir64, optimised."
    kernel: str
    span: NDRange
    array_bytes: Mapping[int, int]
    "Argument number → bytes, for arrays."
    scalars: Mapping[int, int] = field(default_factory=dict)
    "Argument number → value, for integers passed by value."
    source: str = ""
    "The OpenCL C it came from."
    contents: Mapping[int, Contents] = field(default_factory=dict)
    "Argument number → what it holds, for arrays of integers, where that is known."

    def totals(self) -> NDArray[np.float64]:
        """(len(TOTALS),): operations, bytes and launches, in their own units."""
        return self._described.totals

    def row(self) -> NDArray[np.float64]:
        """(len(LAUNCH),): everything a model sees."""
        return self._described.row

    def sliced(self) -> tuple[float, float]:
        """The parts of the bytes up and down that shrink with the share of the work."""
        return self._described.sliced

    @cached_property
    def _described(self) -> _Described:
        return _described(self)  # once: whoever asks for the one asks for the others


@dataclass(frozen=True, eq=False)
class _Described:
    totals: NDArray[np.float64]
    row: NDArray[np.float64]
    sliced: tuple[float, float]


@dataclass(frozen=True, eq=False)
class _Code:
    """What is the same for all launches of a kernel."""

    vector: NDArray[np.float64]
    module: IRModule
    access: KernelAccess


@lru_cache(maxsize=256)
def _code(ir: str, kernel: str, source: str) -> _Code:
    graph = graph_of_ir(ir, name=kernel, options=GraphOptions(function=kernel))
    return _Code(vector_of(graph), read_module(ir), accesses_of(ir, source)[kernel])


@lru_cache(maxsize=1024)
def _work(
    ir: str,
    kernel: str,
    source: str,
    span: NDRange,
    scalars: frozenset[tuple[int, int]],
    contents: frozenset[tuple[int, Contents]],
) -> Work:
    """Counted once for launches that are alike: it takes as long as a short program's first round."""
    return work_of(_code(ir, kernel, source).module, kernel, span, dict(scalars), dict(contents))


def _described(launch: PlannedLaunch) -> _Described:
    code = _code(launch.ir, launch.kernel, launch.source)
    work = _work(
        launch.ir, launch.kernel, launch.source, launch.span, frozenset(launch.scalars.items()),
        frozenset(launch.contents.items()),
    )  # fmt: skip
    up, down, sliced_up, sliced_down = _moved(launch, code.access)
    span = launch.span
    items, groups = span.work_items, math.prod(span.groups)
    whole = sum(launch.array_bytes.values())
    each = np.array([work.counts.get(name, 0.0) for name in WORK])
    barriers = groups * work.counts.get("barriers", 0.0)
    longest = [work.longest.get(name, 0.0) for name in SERIAL]
    copies = sum(
        _brought(use) + use.writes for use in map(code.access.arguments.__getitem__, launch.array_bytes)
    )
    totals = np.array([1.0, items, groups, *(items * each), up, down, whole, barriers, copies, *longest])
    shape = [math.log(items), math.log(math.prod(span.local_size)), span.dimensions, math.log(groups),
             sliced_up, sliced_down]  # fmt: skip
    row = np.concatenate(
        [
            code.vector,
            work.vector(),
            np.log1p(totals[1 : 1 + len(_LOGGED)]),
            shape,
            _ratios(work, items, whole),
        ]
    )
    return _Described(totals, row, (sliced_up, sliced_down))


def _ratios(work: Work, items: int, whole: int) -> list[float]:
    counts = work.counts
    special = sum(counts.get(name, 0.0) for name in ("roots", "powers", "angles"))
    plain = sum(
        counts.get(name, 0.0) for name in ("float operations", "double operations", "integer operations")
    )
    return [math.log1p(items * (plain + 8 * special) / max(whole, 1)), special / max(plain, 1.0)]


def _moved(launch: PlannedLaunch, access: KernelAccess) -> tuple[float, float, float, float]:
    """Bytes to and from a device with its own memory, and the parts of each that shrink with the share."""
    dimension = max(range(launch.span.dimensions), key=lambda d: (launch.span.groups[d] > 1, d))
    groups = launch.span.groups[dimension]
    up = down = less_up = less_down = 0.0
    for number, size in launch.array_bytes.items():
        use = access.arguments[number]
        if _brought(use):
            whole, half = (
                _touched(launch, access, number, size, dimension, count) for count in (groups, groups // 2)
            )
            up += whole
            less_up += 2 * max(0.0, whole - half)
        if use.writes:
            whole = _touched(launch, access, number, size, dimension, groups, write=True)
            half = _touched(launch, access, number, size, dimension, groups // 2, write=True)
            down += whole
            less_down += 2 * max(0.0, whole - half) * (use.merge == "slice")
    return up, down, min(1.0, less_up / up) if up else 0.0, min(1.0, less_down / down) if down else 0.0


def _brought(use: ArgumentAccess) -> bool:
    """Whether a device with its own memory needs what an array holds."""
    return use.reads or bool(use.atomics)


def _touched(
    launch: PlannedLaunch,
    access: KernelAccess,
    number: int,
    size: int,
    dimension: int,
    groups: int,
    *,
    write: bool = False,
) -> float:
    use = access.arguments[number]
    reach = use.write_reach if write else use.read_reach
    found = bytes_touched(
        access.program, reach, launch.span, dimension, (0, max(groups, 1)), launch.scalars, size
    )
    return float(size if found is None else found[1] - found[0])
