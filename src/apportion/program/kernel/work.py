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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.program.kernel.block_counts import simulated
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.features import family_of
from apportion.program.kernel.instructions import Instruction, IRFunction, IRModule

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

GUESSED_TRIPS = 16.0
"Of a loop whose end is not known."
_SEEN = 4096
_READING = {"load", "getelementptr", "sext", "zext", "trunc", "freeze", "bitcast"}
_POW = 6.0
"Exponentials that a power is worth: an exponential and a logarithm, both exact to more digits."
_NO_BUILTINS = {
    "barrier", "atomic", "root", "power", "trigonometric", "get_global_id", "get_local_id", "get_group_id",
    "get_global_size", "get_local_size", "get_num_groups",
}  # fmt: skip
"Families of calls that have a price of their own, or none."
_CHANGING_NOTHING = re.compile(r"atom(?:ic)?_(?:add|sub|or|xor)|atomic_load")
_MOST_BLOCKS = 400
_COALESCED_BYTES = 16
_FLOATS = {"fadd", "fsub", "fmul", "fneg", "fcmp"}
_INTEGERS = {
    "add", "sub", "mul", "shl", "lshr", "ashr", "and", "or", "xor", "icmp", "select", "trunc", "zext", "sext",
    "sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc",
}  # fmt: skip
_DIVISIONS = {"udiv", "sdiv", "urem", "srem", "fdiv", "frem"}
_SIZES = {"get_global_size": "global", "get_local_size": "local", "get_num_groups": "groups"}
_LESS = {"slt", "ult", "sle", "ule"}
"Comparisons of integers that ask whether the first is the smaller."
_FROM_IDS = {
    "call", "add", "sub", "mul", "shl", "or", "xor", "and", "urem", "srem", "udiv", "sdiv", "lshr", "ashr",
    "sext", "zext", "trunc", "freeze",
}  # fmt: skip
"What is worked out of an id and still one: not comparisons, nor what memory holds."
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_BYTES = {"half": 2, "float": 4, "double": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


@dataclass(frozen=True)
class Contents:
    """What an array of integers holds, as far as loops that it ends care."""

    mean: float
    step: float
    "By how much an element is above the one before it, on average, where it is, and 0 where it is not."


def contents_of(values: NDArray[np.integer]) -> Contents:
    """What an array holds; a long one by two runs of neighbours."""
    flat = values.reshape(-1)
    starts = [0, len(flat) // 2] if len(flat) > 2 * _SEEN else [0]
    most = _SEEN if len(starts) > 1 else len(flat)
    runs = [flat[start : start + most].astype(np.float64) for start in starts]
    steps = np.concatenate([np.maximum(np.diff(run), 0.0) for run in runs])
    return Contents(float(np.concatenate(runs).mean()), float(steps.mean()) if len(steps) else 0.0)


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
    """One kernel at one launch."""

    def __init__(
        self,
        function: IRFunction,
        span: NDRange,
        scalars: Mapping[int, int],
        contents: Mapping[int, Contents],
    ) -> None:
        self.function, self.span, self.scalars = function, span, scalars
        self.contents = {name: contents[n] for n, name in enumerate(function.parameters) if n in contents}
        self.by_result = function.by_result()
        self.place = {one.result: place for place, one in enumerate(function.instructions) if one.result}
        self.known: dict[str, float | None] = {
            name: float(scalars[place]) if place in scalars else None
            for place, name in enumerate(function.parameters)
        }
        self.slopes: dict[str, float | None] = dict.fromkeys(function.parameters, 0.0)
        self.apart: dict[str, int] = {}
        self.blocks: dict[str, list[Instruction]] = defaultdict(list)
        for instruction in function.instructions:
            self.blocks[instruction.block].append(instruction)
        self.order = list(self.blocks)
        self.after = {
            block: [target for target in lines[-1].incoming if target in self.blocks]
            if lines[-1].opcode in ("br", "switch")
            else []
            for block, lines in self.blocks.items()
        }
        self.guessed_loops: set[str] = set()
        self.waiting_loops: set[str] = set()
        "Blocks of loops that only wait."

    def work(self) -> Work:
        frequency, longest, guessed, divergent = self._settled()
        counts = self._counts(frequency)
        total = max(counts["instructions"], 1.0)

        def part(blocks: set[str]) -> float:
            inside = sum(frequency.get(block, 1.0) * len(self.blocks[block]) for block in blocks)
            return min(1.0, inside / total)

        return Work(
            counts, part(guessed), part(divergent), counts if longest is None else self._counts(longest)
        )

    def by_instruction(self) -> list[tuple[Instruction, Mapping[str, float]]]:
        frequency, *_ = self._settled()
        found: list[tuple[Instruction, Mapping[str, float]]] = []
        for block, lines in self.blocks.items():
            for instruction in lines:
                counts: dict[str, float] = defaultdict(float)
                self._add(instruction, frequency.get(block, 1.0), counts)
                found.append((instruction, dict(counts)))
        return found

    def _settled(self) -> tuple[dict[str, float], Mapping[str, float] | None, set[str], set[str]]:
        """What `_frequencies` says, and how often blocks run for the longest work-item, where a simulation
        knows better."""
        frequency, guessed, divergent = self._frequencies()
        longest: Mapping[str, float] | None = None
        if self.guessed_loops and (ran := simulated(self.function, self.span, self.scalars)) is not None:
            frequency, longest = dict(ran.mean), ran.longest
            guessed = set() if ran.whole else guessed
        return frequency, longest, guessed, divergent

    def _counts(self, frequency: Mapping[str, float]) -> dict[str, float]:
        counts: dict[str, float] = defaultdict(float)
        for block, lines in self.blocks.items():
            times = frequency.get(block, 1.0)
            for instruction in lines:
                self._add(instruction, times, counts)
        return dict(counts)

    # What an instruction counts as

    def _add(self, instruction: Instruction, times: float, counts: dict[str, float]) -> None:
        opcode, text = instruction.opcode, instruction.text
        counts["instructions"] += times
        vector = _VECTOR.search(text)
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
        elif instruction.block in self.waiting_loops and _only_looks(instruction):
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
        size = times * self._bytes(instruction.type)
        if "addrspace(3)" in place:
            counts["local bytes"] += size
        elif "addrspace" not in place:
            counts["private accesses"] += times
        elif stored:
            coalesced = _is_coalesced(self._slope(pointer))
            counts["coalesced bytes stored" if coalesced else "other bytes stored"] += size
        else:
            slope = self._slope(pointer)
            if slope is None:
                counts["scattered bytes"] += size
            elif slope == 0:
                counts["broadcast bytes"] += size
            else:
                counts["coalesced bytes" if _is_coalesced(slope) else "strided bytes"] += size

    def _bytes(self, kind: str) -> float:
        vector = _VECTOR.search(kind)
        if vector:
            return int(vector[1]) * _BYTES.get(vector[2], 4)
        return _BYTES.get(kind.split(" ")[0], 8)

    # How values change from one work-item to the next

    def _slope(self, value: str, depth: int = 0) -> float | None:
        """How much more a value is in the next work-item; None where that is not one number."""
        if not value.startswith("%"):
            return 0.0
        if value in self.slopes:
            return self.slopes[value]
        instruction = self.by_result.get(value)
        if instruction is not None and instruction.opcode == "phi":
            instruction = self._entering(instruction)
        self.slopes[value] = None
        found = self._slope_of(instruction, depth) if depth < 60 else None
        self.slopes[value] = found
        return found

    def _entering(self, phi: Instruction) -> Instruction:
        """A phi without the values that come round a loop: those are defined after it."""
        early = tuple(
            operand
            for operand in phi.operands
            if not operand.startswith("%") or self.place.get(operand, -1) < self.place[phi.result or ""]
        )
        return replace(phi, operands=early)

    def _slope_of(self, instruction: Instruction | None, depth: int) -> float | None:
        if instruction is None:
            return None
        operands = [self._slope(operand, depth + 1) for operand in instruction.operands]
        match instruction.opcode:
            case "call":
                name = instruction.callee
                if "get_global_id" in name or "get_local_id" in name:
                    return 1.0 if instruction.operands[:1] == ("0",) else 0.0
                if "get_" in name:
                    return 0.0
                return 0.0 if operands and all(slope == 0 for slope in operands) else None
            case "getelementptr":
                size = self._bytes(instruction.element) if "{" not in instruction.element else 8.0
                if any(slope is None for slope in operands):
                    return None
                base, *rest = [slope or 0.0 for slope in operands]
                return base + size * sum(rest)
            case "add" | "or":
                return None if None in operands else sum(slope or 0.0 for slope in operands)
            case "sub":
                if None in operands or len(operands) < 2:
                    return None
                return (operands[0] or 0.0) - (operands[1] or 0.0)
            case "mul" | "shl":
                return self._scaled(instruction, operands)
            case "sext" | "zext" | "trunc" | "bitcast" | "addrspacecast" | "freeze":
                return operands[0] if operands else None
            case "phi":
                return max((abs(slope) for slope in operands if slope is not None), default=None)
            case "ashr" | "lshr":
                return self._extended(instruction)
            case "select":
                return operands[1] if len(operands) > 1 else None
        return (
            0.0
            if operands and all(slope == 0 for slope in operands) and instruction.opcode != "load"
            else None
        )

    def _extended(self, instruction: Instruction) -> float | None:
        """Shifted up and down again by as much, a value is what it was."""
        up = self._shifted_up(instruction)
        down = self._value(instruction.operands[1]) if up is not None else None
        if up is not None and down is not None:
            slope = self._slope(self.by_result[instruction.operands[0]].operands[0])
            return None if slope is None else slope * 2.0 ** (up - down)
        slope = self._slope(instruction.operands[0]) if instruction.operands else None
        return 0.0 if slope == 0 else None

    def _scaled(self, instruction: Instruction, operands: list[float | None]) -> float | None:
        if None in operands or len(operands) < 2:
            return None
        a, b = operands[0] or 0.0, operands[1] or 0.0
        if a == 0 and b == 0:
            return 0.0
        value = self._value(instruction.operands[1 if b == 0 else 0])
        if value is None or (a and b):
            return 1024.0 if not (a and b) else None  # a stride that is not known is taken for a long one
        if instruction.opcode == "shl":
            return float(a * 2.0 ** min(value, 40.0))
        return (a or b) * value

    # Values that a launch knows

    def _value(self, operand: str, depth: int = 0) -> float | None:
        if not operand.startswith("%"):
            try:
                return float(int(operand))
            except ValueError:
                return None
        if operand in self.known:
            return self.known[operand]
        self.known[operand] = None
        instruction = self.by_result.get(operand)
        if instruction is not None and depth < 60:
            self.known[operand] = self._value_of(instruction, depth)
        return self.known[operand]

    def _value_of(self, instruction: Instruction, depth: int) -> float | None:
        if instruction.opcode == "call":
            return self._size(instruction)
        values = [self._value(operand, depth + 1) for operand in instruction.operands]
        second = values[-1] if values else None
        match instruction.opcode:
            case "and" if second is not None and values[0] is None:
                return second / 2  # data under a mask: half of what it may be
            case "urem" | "srem" if second is not None and values[0] is None:
                return second / 2
            case "sext" | "zext" | "trunc" | "freeze":
                return values[0] if values else None
        if len(values) < 2 or values[0] is None or second is None:
            return None
        a, b = values[0], second
        match instruction.opcode:
            case "add" | "or":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "shl":
                return float(a * 2.0 ** min(b, 60.0))
            case "lshr" | "ashr":
                return float(a // 2.0 ** min(b, 60.0))
            case "udiv" | "sdiv" if b:
                return float(int(a / b))
            case "and":
                return float(int(a) & int(b))
            case "select":
                return b
        return None

    def _size(self, instruction: Instruction) -> float | None:
        dimension = _dimension(instruction)
        if dimension is None:
            return None
        name = next((kind for call, kind in _SIZES.items() if call in instruction.callee), None)
        if name is None:
            if "get_global_id" not in instruction.callee:
                return None
            return self.span.global_size[dimension] / 2 if dimension < self.span.dimensions else 0.0
        if dimension >= self.span.dimensions:
            return 1.0
        sizes = {"global": self.span.global_size, "local": self.span.local_size, "groups": self.span.groups}
        return float(sizes[name][dimension])

    # How often blocks run

    def _frequencies(self) -> tuple[dict[str, float], set[str], set[str]]:
        """Block → how often it runs; the blocks in guessed loops; those behind branches that data decides."""
        if len(self.order) > _MOST_BLOCKS:
            return {}, set(), set()
        loops = self._loops()
        number = {block: place for place, block in enumerate(self.order)}
        flow = np.zeros((len(self.order), len(self.order)))
        divergent: set[str] = set()
        for block, targets in self.after.items():
            inside = [loop for loop in loops if block in loop]
            innermost = min(inside, key=len) if inside else None
            for target, part in self._parts(block, targets, innermost, loops).items():
                flow[number[target], number[block]] += part
            if len(set(targets)) > 1 and innermost is None and self._condition_slope(block) is None:
                divergent |= {target for target in targets if len(self.after[target]) < 2}
        try:
            times = np.linalg.solve(np.eye(len(self.order)) - flow, np.eye(len(self.order))[:, 0])
        except np.linalg.LinAlgError:
            return {}, set(), set()
        guessed = {block for loop in loops if min(loop) in self.guessed_loops for block in loop}
        return dict(zip(self.order, np.clip(times, 0, 1e9).tolist(), strict=True)), guessed, divergent

    def _condition_slope(self, block: str) -> float | None:
        last = self.blocks[block][-1]
        condition = self.by_result.get(last.operands[0]) if last.operands else None
        if condition is None:
            return 0.0
        slopes = [self._slope(operand) for operand in condition.operands]
        return None if None in slopes else 0.0

    def _parts(
        self, block: str, targets: list[str], loop: frozenset[str] | None, loops: list[frozenset[str]]
    ) -> dict[str, float]:
        """Target → the part of the times that a block goes there."""
        distinct = list(dict.fromkeys(targets))
        if len(distinct) < 2:
            return dict.fromkeys(distinct, 1.0)
        leaving = [target for target in distinct if loop is not None and target not in loop]
        if loop is not None and leaving and len(leaving) < len(distinct):
            trips = self._trip_count(block, loop, targets)
            out = 1 / max(trips, 1.0)
            staying = [target for target in distinct if target not in leaving]
            return _divided(leaving, staying, out)
        if len(targets) == 2 and (likely := self._likely(block)) is not None:
            return {targets[0]: likely, targets[1]: 1 - likely}
        entering = [target for target in distinct if self._enters(target, block, loops)]
        if entering and len(entering) < len(distinct):  # a test that a loop runs at all
            rest = [target for target in distinct if target not in entering]
            return _divided(rest, entering, 0.05)
        empty = [target for target in distinct if self._ends(target)]
        if empty and len(empty) < len(distinct):
            rest = [target for target in distinct if target not in empty]
            return _divided(empty, rest, 0.03)  # a work-item beyond the end of the data
        return dict.fromkeys(distinct, 1 / len(distinct))

    def _enters(self, target: str, block: str, loops: list[frozenset[str]]) -> bool:
        """Whether a block leads into a loop that it is not in, at once or by a block that leads nowhere
        else."""
        ways = {target, *(self.after[target] if len(set(self.after[target])) == 1 else ())}
        return any(way in inner and block not in inner for inner in loops for way in ways)

    def _likely(self, block: str) -> float | None:
        """How often the first of two ways is gone, where a comparison of known values decides."""
        last = self.blocks[block][-1]
        return self._chance(last.operands[0]) if last.operands else None

    def _chance(self, value: str, depth: int = 0) -> float | None:
        """How often a condition holds; of several at once, those that are not known half the time."""
        condition = self.by_result.get(value)
        if condition is None or depth > 10:
            return None
        if condition.opcode in ("and", "or", "select", "xor") and condition.type == "i1":
            return self._joined(condition, depth)
        if condition.opcode != "icmp":
            return None
        if condition.element in ("eq", "ne") and (equal := self._equal(condition.operands)) is not None:
            return equal if condition.element == "eq" else 1 - equal
        a, b = (self._value(operand) for operand in condition.operands)
        if a is None or b is None:
            return None
        ordered = condition.element not in ("eq", "ne")
        if ordered and (below := self._below(condition.operands, a, b)) is not None:
            return below if condition.element in _LESS else 1 - below
        true = {
            "eq": a == b, "ne": a != b, "sgt": a > b, "ugt": a > b, "sge": a >= b, "uge": a >= b,
            "slt": a < b, "ult": a < b, "sle": a <= b, "ule": a <= b,
        }.get(condition.element)  # fmt: skip
        return None if true is None else 0.97 if true else 0.03

    def _equal(self, operands: tuple[str, ...]) -> float | None:
        """How often two values are equal, where an id decides, or an element of an array that is known."""
        among = max(self._told_apart(operand) for operand in operands)
        if among > 1:
            return 1 / among
        for value, other in (operands, operands[::-1]):
            held, wanted = self._held(value), self._value(other)
            if held is None or wanted is None or held.mean < 0:
                continue
            if held.mean <= 1:  # a flag
                return 1 - held.mean if wanted == 0 else held.mean if wanted == 1 else 0.0
            return 1 / (2 * held.mean + 1) if 0 <= wanted <= 2 * held.mean else 0.0
        return None

    def _joined(self, condition: Instruction, depth: int) -> float | None:
        """`and`, `or` and `not`, as clang writes them: a choice between a condition and a constant too."""
        chances = [self._chance(operand, depth + 1) for operand in condition.operands]
        if condition.opcode == "xor":
            return None if chances[0] is None or condition.operands[1] != "true" else 1 - chances[0]
        if condition.opcode == "select":
            known = [operand in ("true", "false") for operand in condition.operands]
            if known not in ([False, False, True], [False, True, False]):
                return None
            both = condition.operands[2] == "false"
            if not both and condition.operands[1] != "true":
                return None
            chances = [chances[0], chances[1 if both else 2]]
        else:
            both = condition.opcode == "and"
        if all(chance is None for chance in chances):
            return None
        first, second = (0.5 if chance is None else chance for chance in chances)
        return first * second if both else 1 - (1 - first) * (1 - second)

    def _below(self, operands: tuple[str, ...], a: float, b: float) -> float | None:
        """How many of the work-items have a first value below the second, where one of them is an id: ids are
        known by their mean, and go from 0 to twice that."""
        told = [self._told_apart(operand) for operand in operands]
        if told[0] > 1 and told[1] == 1 and a > 0:
            # Of an id itself nothing is beyond the range; what is worked out of one may be a little.
            edge = 0.0 if 2 * a == told[0] else 0.001
            return float(np.clip(b / (2 * a), edge, 1 - edge))
        if told[1] > 1 and told[0] == 1 and b > 0:
            edge = 0.0 if 2 * b == told[1] else 0.001
            return float(np.clip(1 - a / (2 * b), edge, 1 - edge))
        return None

    def _told_apart(self, value: str, depth: int = 0) -> int:
        """How many work-items a value tells apart: all of a dimension where it comes from a global id, those
        of a group where from a local one, 1 where it is the same for all or comes from data."""
        if value not in self.apart:
            instruction = self.by_result.get(value)
            if instruction is None or depth > 20 or instruction.opcode not in _FROM_IDS:
                return 1
            self.apart[value] = self._told_apart_by(instruction, depth)
        return self.apart[value]

    def _told_apart_by(self, instruction: Instruction, depth: int) -> int:
        if instruction.opcode == "call":
            dimension = _dimension(instruction)
            if dimension is None or dimension >= self.span.dimensions:
                return 1
            for name, sizes in (
                ("get_global_id", self.span.global_size),
                ("get_local_id", self.span.local_size),
                ("get_group_id", self.span.groups),
            ):
                if name in instruction.callee:
                    return sizes[dimension]
            return 1
        among = max((self._told_apart(operand, depth + 1) for operand in instruction.operands), default=1)
        last = self._value(instruction.operands[-1]) if len(instruction.operands) > 1 else None
        if among > 1 and last is not None and last >= 0:
            match instruction.opcode:  # what is left of an id tells fewer apart
                case "and":
                    return min(among, int(last) + 1)
                case "urem" | "srem":
                    return min(among, max(1, int(last)))
                case "udiv" | "sdiv":
                    return max(1, among // max(1, int(last)))
                case "lshr" | "ashr" if self._shifted_up(instruction) != last:
                    return max(1, among >> min(int(last), 62))
        return among

    def _shifted_up(self, shift: Instruction) -> float | None:
        """By how much what is shifted down was shifted up before: clang extends ids like that."""
        inner = self.by_result.get(shift.operands[0]) if shift.operands else None
        return self._value(inner.operands[1]) if inner is not None and inner.opcode == "shl" else None

    def _ends(self, block: str) -> bool:
        return self.blocks[block][-1].opcode == "ret" and len(self.blocks[block]) <= 2

    def _trip_count(self, block: str, loop: frozenset[str], targets: list[str]) -> float:
        """The trip count of a loop that is left from this block."""
        last = self.blocks[block][-1]
        condition = self.by_result.get(last.operands[0]) if last.operands else None
        found = (
            self._trip_count_by(condition, loop)
            if condition is not None and condition.opcode == "icmp"
            else None
        )
        if found is None and last.operands and self._waits(last.operands[0], loop):
            self.waiting_loops |= loop
            return 1.0
        if found is None:
            self.guessed_loops.add(min(loop))
            return GUESSED_TRIPS
        return float(np.clip(found, 1.0, 1e8))

    def _waits(self, condition: str, loop: frozenset[str]) -> bool:
        """Whether a loop does nothing but look at memory until its condition holds."""
        inside = [instruction for block in loop for instruction in self.blocks[block]]
        if any(
            one.opcode in ("store", "cmpxchg")
            or (
                (one.opcode in ("atomicrmw", "call") and family_of(one.text) in ("atomic", "barrier"))
                and not _only_looks(one)
            )
            for one in inside
        ):
            return False
        by_result = {one.result: one for one in inside if one.result}
        pending, seen = [condition], set()
        while pending:
            value = pending.pop()
            instruction = by_result.get(value)
            if instruction is None or value in seen:
                continue
            if _only_looks(instruction):
                return True
            seen.add(value)
            pending += instruction.operands
        return False

    def _trip_count_by(self, condition: Instruction, loop: frozenset[str]) -> float | None:
        for moving, bound in (condition.operands, condition.operands[::-1]):
            counter = self._counter(moving, loop)
            held = self._held(bound)
            end = held.mean if held is not None else self._value(bound)
            if counter is None or end is None:
                continue
            start, step, factor, source = counter
            if held is not None and held is source and step:  # from one element of an array to the next
                return max(1.0, held.step / abs(step))
            if factor is not None:
                if factor > 1 and max(end, 1.0) > max(start, 1.0):
                    return math.log(max(end, 1.0) / max(start, 1.0), factor) + 1
                if 0 < factor < 1 and start > 1:
                    return math.log(start / max(end, 1.0), 1 / factor) + 1
                continue
            if step:
                return max(1.0, math.ceil((end - start) / step))
        return None

    def _held(self, value: str) -> Contents | None:
        """What the array holds that a value was read from, where that is known."""
        for _ in range(6):
            instruction = self.by_result.get(value)
            if instruction is None or instruction.opcode not in _READING or not instruction.operands:
                return None
            value = instruction.operands[0]
            if value in self.contents:
                return self.contents[value]
        return None

    def _counter(
        self, value: str, loop: frozenset[str]
    ) -> tuple[float, float, float | None, Contents | None] | None:
        """(start, step, factor, the array that the start was read from) of a value that a loop counts by."""
        instruction = self.by_result.get(value)
        for _ in range(4):  # through an extension, or the addition that comes before the test
            if instruction is None:
                return None
            if instruction.opcode in ("sext", "zext", "trunc"):
                instruction = self.by_result.get(instruction.operands[0])
            elif instruction.opcode in (
                "add",
                "sub",
                "shl",
                "lshr",
                "ashr",
                "mul",
                "udiv",
                "sdiv",
                "or",
            ) and (instruction.block in loop):
                following = self.by_result.get(instruction.operands[0])
                if following is None:
                    return None
                instruction = following
            else:
                break
        if instruction is None or instruction.opcode != "phi" or instruction.block not in loop:
            return None
        start: float | None = None
        source: Contents | None = None
        change: Instruction | None = None
        for operand, block in zip(instruction.operands, instruction.incoming, strict=False):
            producer = self.by_result.get(operand)
            if block in loop and producer is not None:
                change = producer
            elif block not in loop:
                source = self._held(operand)
                start = self._value(operand) if source is None else source.mean
        if change is None:
            return None
        start = 0.0 if start is None else start
        amount = self._value(change.operands[-1]) if change.operands else None
        if amount is None:
            return None
        match change.opcode:
            case "add" | "or":
                return start, amount, None, source
            case "sub":
                return start, -amount, None, source
            case "shl":
                return start, 0.0, 2.0**amount, source
            case "mul" if amount > 1:
                return start, 0.0, amount, source
            case "lshr" | "ashr":
                return start, 0.0, 0.5**amount, source
            case "udiv" | "sdiv" if amount > 1:
                return start, 0.0, 1 / amount, source
        return None

    def _loops(self) -> list[frozenset[str]]:
        """The natural loops: of each edge back to a block that dominates it, what leads there."""
        dominators = self._dominators()
        before: dict[str, set[str]] = defaultdict(set)
        for block, targets in self.after.items():
            for target in targets:
                before[target].add(block)
        found: dict[str, set[str]] = {}
        for block, targets in self.after.items():
            for head in targets:
                if head in dominators.get(block, ()):
                    inside = found.setdefault(head, {head})
                    pending = [block]
                    while pending:
                        one = pending.pop()
                        if one not in inside:
                            inside.add(one)
                            pending += before[one]
        return [frozenset(inside) for inside in found.values()]

    def _dominators(self) -> dict[str, set[str]]:
        before: dict[str, list[str]] = defaultdict(list)
        for block, targets in self.after.items():
            for target in targets:
                before[target].append(block)
        everything = set(self.order)
        found = {block: set(everything) for block in self.order}
        found[self.order[0]] = {self.order[0]}
        changed = True
        while changed:
            changed = False
            for block in self.order[1:]:
                preceding = [found[one] for one in before[block]]
                new = set.intersection(*preceding) | {block} if preceding else {block}
                if new != found[block]:
                    found[block], changed = new, True
        return found


def _divided(few: list[str], many: list[str], part: float) -> dict[str, float]:
    """Target → part of the times: this part to a few, the rest to the others, evenly among each."""
    return dict.fromkeys(few, part / len(few)) | dict.fromkeys(many, (1 - part) / len(many))


def _only_looks(instruction: Instruction) -> bool:
    """Whether an instruction reads what other work-items may be writing, and changes nothing."""
    match instruction.opcode:
        case "load":
            return instruction.text.lstrip().startswith(("load volatile", "load atomic")) or bool(
                re.search(r"= load (?:volatile|atomic)", instruction.text)
            )
        case "atomicrmw":
            return instruction.element in ("add", "sub", "or", "xor") and instruction.operands[-1] == "0"
        case "call":
            name = _CHANGING_NOTHING.search(instruction.callee)
            return name is not None and ("load" in name[0] or instruction.operands[-1:] == ("0",))
    return False


def _is_coalesced(slope: float | None) -> bool:
    return slope is not None and 0 < abs(slope) <= _COALESCED_BYTES


def _dimension(call: Instruction) -> int | None:
    """The dimension that a question for an id or a size is about, where it is a number."""
    return int(call.operands[0]) if call.operands[:1] and call.operands[0].isdigit() else None
