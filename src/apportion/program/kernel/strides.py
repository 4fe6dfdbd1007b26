"""How values, and so addresses, change from one work-item to the next."""

from __future__ import annotations

import re
from dataclasses import replace

from apportion.program.kernel.instructions import Instruction, IRFunction
from apportion.program.kernel.launch_values import LaunchValues

VECTOR = re.compile(r"<(\d+) x (\w+)>")
_BYTES = {"half": 2, "float": 4, "double": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
_COALESCED_BYTES = 16


def bytes_of(kind: str) -> float:
    """The bytes of a value of this type."""
    vector = VECTOR.search(kind)
    if vector:
        return int(vector[1]) * _BYTES.get(vector[2], 4)
    return _BYTES.get(kind.split(" ")[0], 8)


def is_coalesced(slope: float | None) -> bool:
    """Whether neighbouring work-items touch neighbouring memory."""
    return slope is not None and 0 < abs(slope) <= _COALESCED_BYTES


class Strides:
    """The differences between neighbouring work-items of one kernel at one launch."""

    def __init__(self, function: IRFunction, values: LaunchValues) -> None:
        self._values = values
        self._place = {one.result: place for place, one in enumerate(function.instructions) if one.result}
        self._slopes: dict[str, float | None] = dict.fromkeys(function.parameters, 0.0)

    def slope(self, value: str, depth: int = 0) -> float | None:
        """How much more a value is in the next work-item; None where that is not one number."""
        if not value.startswith("%"):
            return 0.0
        if value in self._slopes:
            return self._slopes[value]
        instruction = self._values.by_result.get(value)
        if instruction is not None and instruction.opcode == "phi":
            instruction = self._entering(instruction)
        self._slopes[value] = None
        found = self._slope_of(instruction, depth) if depth < 60 else None
        self._slopes[value] = found
        return found

    def _entering(self, phi: Instruction) -> Instruction:
        """A phi without the values that come round a loop: those are defined after it."""
        early = tuple(
            operand
            for operand in phi.operands
            if not operand.startswith("%") or self._place.get(operand, -1) < self._place[phi.result or ""]
        )
        return replace(phi, operands=early)

    def _slope_of(self, instruction: Instruction | None, depth: int) -> float | None:
        if instruction is None:
            return None
        operands = [self.slope(operand, depth + 1) for operand in instruction.operands]
        match instruction.opcode:
            case "call":
                name = instruction.callee
                if "get_global_id" in name or "get_local_id" in name:
                    return 1.0 if instruction.operands[:1] == ("0",) else 0.0
                if "get_" in name:
                    return 0.0
                return 0.0 if operands and all(slope == 0 for slope in operands) else None
            case "getelementptr":
                size = bytes_of(instruction.element) if "{" not in instruction.element else 8.0
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
        up = self._values.shifted_up(instruction)
        down = self._values.value(instruction.operands[1]) if up is not None else None
        if up is not None and down is not None:
            slope = self.slope(self._values.by_result[instruction.operands[0]].operands[0])
            return None if slope is None else slope * 2.0 ** (up - down)
        slope = self.slope(instruction.operands[0]) if instruction.operands else None
        return 0.0 if slope == 0 else None

    def _scaled(self, instruction: Instruction, operands: list[float | None]) -> float | None:
        if None in operands or len(operands) < 2:
            return None
        a, b = operands[0] or 0.0, operands[1] or 0.0
        if a == 0 and b == 0:
            return 0.0
        value = self._values.value(instruction.operands[1 if b == 0 else 0])
        if value is None or (a and b):
            return 1024.0 if not (a and b) else None  # a stride that is not known is taken for a long one
        if instruction.opcode == "shl":
            return float(a * 2.0 ** min(value, 40.0))
        return (a or b) * value
