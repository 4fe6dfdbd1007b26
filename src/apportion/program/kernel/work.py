"""How much a work-item does: operations and bytes of a launch, with loops counted by their trip counts.

Static counts say what a kernel is made of, not how much of it happens. Here each block of the optimised IR
gets a frequency: branches split it, loops multiply it by their trip counts, which follow from constants,
scalar arguments and the sizes of the launch where they can, and are guessed where data decides. How an
address changes from one work-item to the next says whether neighbours read neighbouring memory.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.program.kernel.block_counts import simulated
from apportion.program.kernel.block_frequencies import BlockFrequencies
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.control_flow import ControlFlow
from apportion.program.kernel.features import family_of
from apportion.program.kernel.instructions import Instruction, IRFunction, IRModule
from apportion.program.kernel.launch_values import Contents, LaunchValues
from apportion.program.kernel.strides import VECTOR, Strides, bytes_of, is_coalesced
from apportion.program.kernel.trip_counts import only_looks

WORK = (
    "float operations", "double operations", "integer operations", "divisions", "roots", "powers", "angles",
    "double functions", "branches", "barriers", "global atomics", "local atomics", "local bytes",
    "private accesses",
    "coalesced bytes", "strided bytes", "broadcast bytes", "scattered bytes", "coalesced bytes stored",
    "other bytes stored", "vector operations", "calls", "instructions", "waits",
    "long divisions", "builtins",
)  # fmt: skip
"""What is counted per work-item. Bytes of global memory are `coalesced` where neighbours touch neighbouring
places, `strided` where a stride lies between them, `broadcast` where all touch one place, `scattered` where
data decides. It `waits` in loops that do nothing until another work-item has written something. `long
divisions` are those of 64-bit integers, which some devices have no instruction for; `builtins` are calls of
functions like `min` and `floor`, which some compilers leave calls, whatever it is that they do."""
SERIAL = (
    "float operations", "double operations", "integer operations", "divisions", "long divisions", "roots",
    "powers", "angles",
)  # fmt: skip
"What counts of the longest work-item: its operations follow each other, however many processors there are."
_POW = 6.0
"Exponentials that a power is worth: an exponential and a logarithm, both exact to more digits."
_NO_BUILTINS = {
    "barrier", "atomic", "root", "power", "trigonometric", "get_global_id", "get_local_id", "get_group_id",
    "get_global_size", "get_local_size", "get_num_groups",
}  # fmt: skip
"Families of calls that have a price of their own, or none."
_FLOATS = {"fadd", "fsub", "fmul", "fneg", "fcmp"}
_INTEGERS = {
    "add", "sub", "mul", "shl", "lshr", "ashr", "and", "or", "xor", "icmp", "select", "trunc", "zext", "sext",
    "sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc",
}  # fmt: skip
_DIVISIONS = {"udiv", "sdiv", "urem", "srem", "fdiv", "frem"}


@dataclass(frozen=True)
class Work:
    """What one work-item does, on average."""

    counts: Mapping[str, float]
    guessed: float
    "The part of the instructions that stand in loops whose trip counts were guessed."
    divergent: float
    "The part that stands behind branches that data decides."
    longest: Mapping[str, float]
    "What the work-item does that does most, of those that were looked at; the average one where none was."

    def vector(self) -> NDArray[np.float64]:
        """(len(WORK) + 2,): counts as log(1 + count), then the two parts."""
        counted = [math.log1p(self.counts.get(name, 0.0)) for name in WORK]
        return np.array([*counted, self.guessed, self.divergent])


def work_of(
    module: IRModule,
    kernel: str,
    span: NDRange,
    scalars: Mapping[int, int],
    contents: Mapping[int, Contents] | None = None,
) -> Work:
    """The work of one work-item of a kernel.

    Args:
        module: IR for spir64, optimised.
        scalars: argument number → value, for integers passed by value.
        contents: argument number → what it holds, for arrays of integers, where that is known.
    """
    return _Count(module.functions[kernel], span, scalars, contents or {}).work()


def work_by_instruction(
    module: IRModule,
    kernel: str,
    span: NDRange,
    scalars: Mapping[int, int],
    contents: Mapping[int, Contents] | None = None,
) -> list[tuple[Instruction, Mapping[str, float]]]:
    """Each instruction of a kernel with what it adds to the `counts` of `work_of`, which takes the same."""
    return _Count(module.functions[kernel], span, scalars, contents or {}).by_instruction()


class _Count:
    """The operations and bytes of one kernel at one launch."""

    def __init__(
        self,
        function: IRFunction,
        span: NDRange,
        scalars: Mapping[int, int],
        contents: Mapping[int, Contents],
    ) -> None:
        self._function, self._span, self._scalars = function, span, scalars
        values = LaunchValues(function, span, scalars, contents)
        self._flow = ControlFlow(function)
        self._strides = Strides(function, values)
        self._frequencies = BlockFrequencies(self._flow, values, self._strides)

    def work(self) -> Work:
        frequency, longest, guessed, divergent = self._settled()
        counts = self._counts(frequency)
        total = max(counts["instructions"], 1.0)

        def part(blocks: set[str]) -> float:
            inside = sum(
                frequency.get(block, 1.0) * len(lines)
                for block, lines in self._flow.blocks.items() if block in blocks
            )  # fmt: skip
            return min(1.0, inside / total)

        return Work(
            counts, part(guessed), part(divergent), counts if longest is None else self._counts(longest)
        )

    def by_instruction(self) -> list[tuple[Instruction, Mapping[str, float]]]:
        frequency, *_ = self._settled()
        found: list[tuple[Instruction, Mapping[str, float]]] = []
        for block, lines in self._flow.blocks.items():
            for instruction in lines:
                counts: dict[str, float] = defaultdict(float)
                self._add(instruction, frequency.get(block, 1.0), counts)
                found.append((instruction, dict(counts)))
        return found

    def _settled(self) -> tuple[dict[str, float], Mapping[str, float] | None, set[str], set[str]]:
        """What `_frequencies` says, and how often blocks run for the longest work-item, where a simulation
        knows better."""
        frequency, guessed, divergent = self._frequencies.found()
        longest: Mapping[str, float] | None = None
        if (
            self._frequencies.trips.guessed_loops
            and (ran := simulated(self._function, self._span, self._scalars)) is not None
        ):
            frequency, longest = dict(ran.mean), ran.longest
            guessed = set() if ran.whole else guessed
        return frequency, longest, guessed, divergent

    def _counts(self, frequency: Mapping[str, float]) -> dict[str, float]:
        counts: dict[str, float] = defaultdict(float)
        for block, lines in self._flow.blocks.items():
            times = frequency.get(block, 1.0)
            for instruction in lines:
                self._add(instruction, times, counts)
        return dict(counts)

    def _add(self, instruction: Instruction, times: float, counts: dict[str, float]) -> None:
        opcode, text = instruction.opcode, instruction.text
        counts["instructions"] += times
        vector = VECTOR.search(text)
        lanes = int(vector[1]) if vector else 1
        if vector:
            counts["vector operations"] += times
        double = "double" in text
        if opcode in _FLOATS:
            counts["double operations" if double else "float operations"] += times * lanes
        elif opcode in _DIVISIONS:
            long = instruction.type.endswith(("i64", "i64>"))
            counts["long divisions" if long else "divisions"] += times * lanes * (2 if double else 1)
        elif opcode in _INTEGERS:
            counts["integer operations"] += times * lanes
        elif opcode in ("br", "switch"):
            counts["branches"] += times
        elif instruction.block in self._frequencies.trips.waiting_loops and only_looks(instruction):
            counts["waits"] += times
        elif opcode in ("load", "store"):
            self._access(instruction, times, counts)
        elif opcode in ("atomicrmw", "cmpxchg"):
            counts["local atomics" if "addrspace(3)" in text else "global atomics"] += times
        elif opcode == "call":
            self._call(instruction, times * lanes, double, counts)

    def _call(self, instruction: Instruction, times: float, double: bool, counts: dict[str, float]) -> None:
        family = family_of(instruction.text)
        if family not in _NO_BUILTINS and not instruction.callee.startswith("llvm."):
            counts["builtins"] += times
        if family == "barrier":
            counts["barriers"] += times
        elif family == "atomic":
            counts["local atomics" if "AS3" in instruction.callee else "global atomics"] += times
        elif family == "fused":
            counts["double operations" if double else "float operations"] += 2 * times
        elif family in ("root", "power", "trigonometric"):
            worth = _POW if family == "power" and "pow" in instruction.callee else 1.0
            counts[{"root": "roots", "power": "powers", "trigonometric": "angles"}[family]] += worth * times
            counts["double functions"] += times * double
        elif family == "extremum":
            floats = "double operations" if double else "float operations"
            counts[floats if "float" in instruction.text or double else "integer operations"] += times
        elif not family.startswith("get_"):
            counts["calls"] += times
            if re.search(r"tanh|atan|sinh|cosh|erf|gamma|cbrt|hypot", instruction.callee):
                counts["angles"] += times
                counts["double functions"] += times * double

    def _access(self, instruction: Instruction, times: float, counts: dict[str, float]) -> None:
        stored = instruction.opcode == "store"
        pointer = instruction.operands[1 if stored else 0] if instruction.operands else ""
        place = instruction.operand_types[-1] if instruction.operand_types else ""
        size = times * bytes_of(instruction.type)
        if "addrspace(3)" in place:
            counts["local bytes"] += size
        elif "addrspace" not in place:
            counts["private accesses"] += times
        elif stored:
            coalesced = is_coalesced(self._strides.slope(pointer))
            counts["coalesced bytes stored" if coalesced else "other bytes stored"] += size
        else:
            slope = self._strides.slope(pointer)
            if slope is None:
                counts["scattered bytes"] += size
            elif slope == 0:
                counts["broadcast bytes"] += size
            else:
                counts["coalesced bytes" if is_coalesced(slope) else "strided bytes"] += size
