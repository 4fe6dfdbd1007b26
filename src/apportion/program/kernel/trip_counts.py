"""Trip counts of loops: from constants, scalars, sizes and what arrays hold; guessed where data decides."""

from __future__ import annotations

import math
import re

import numpy as np

from apportion.program.kernel.control_flow import ControlFlow
from apportion.program.kernel.features import family_of
from apportion.program.kernel.instructions import Instruction
from apportion.program.kernel.launch_values import Contents, LaunchValues

GUESSED_TRIPS = 16.0
"Of a loop whose end is not known."
_CHANGING_NOTHING = re.compile(r"atom(?:ic)?_(?:add|sub|or|xor)|atomic_load")


class TripCounts:
    """The trip counts of one kernel's loops at one launch."""

    def __init__(self, flow: ControlFlow, values: LaunchValues) -> None:
        self._flow, self._values = flow, values
        self.guessed_loops: set[str] = set()
        "The first block of each loop whose trip count was guessed."
        self.waiting_loops: set[str] = set()
        "Blocks of loops that only wait."

    def count(self, block: str, loop: frozenset[str]) -> float:
        """The trip count of a loop that is left from this block."""
        last = self._flow.blocks[block][-1]
        condition = self._values.by_result.get(last.operands[0]) if last.operands else None
        found = (
            self._count_by(condition, loop) if condition is not None and condition.opcode == "icmp" else None
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
        inside = [instruction for block in loop for instruction in self._flow.blocks[block]]
        if any(
            one.opcode in ("store", "cmpxchg")
            or (
                (one.opcode in ("atomicrmw", "call") and family_of(one.text) in ("atomic", "barrier"))
                and not only_looks(one)
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
            if only_looks(instruction):
                return True
            seen.add(value)
            pending += instruction.operands
        return False

    def _count_by(self, condition: Instruction, loop: frozenset[str]) -> float | None:
        for moving, bound in (condition.operands, condition.operands[::-1]):
            counter = self._counter(moving, loop)
            held = self._values.held(bound)
            end = held.mean if held is not None else self._values.value(bound)
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

    def _counter(
        self, value: str, loop: frozenset[str]
    ) -> tuple[float, float, float | None, Contents | None] | None:
        """(start, step, factor, the array that the start was read from) of a value that a loop counts by."""
        instruction = self._values.by_result.get(value)
        for _ in range(4):  # through an extension, or the addition that comes before the test
            if instruction is None:
                return None
            if instruction.opcode in ("sext", "zext", "trunc"):
                instruction = self._values.by_result.get(instruction.operands[0])
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
                following = self._values.by_result.get(instruction.operands[0])
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
            producer = self._values.by_result.get(operand)
            if block in loop and producer is not None:
                change = producer
            elif block not in loop:
                source = self._values.held(operand)
                start = self._values.value(operand) if source is None else source.mean
        if change is None:
            return None
        start = 0.0 if start is None else start
        amount = self._values.value(change.operands[-1]) if change.operands else None
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


def only_looks(instruction: Instruction) -> bool:
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
