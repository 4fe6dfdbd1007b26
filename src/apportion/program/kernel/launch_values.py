"""What a launch says of a kernel's values: constants, scalar arguments, sizes, ids, and what arrays hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.instructions import Instruction, IRFunction

_SEEN = 4096
_READING = {"load", "getelementptr", "sext", "zext", "trunc", "freeze", "bitcast"}
_SIZES = {"get_global_size": "global", "get_local_size": "local", "get_num_groups": "groups"}
_FROM_IDS = {
    "call", "add", "sub", "mul", "shl", "or", "xor", "and", "urem", "srem", "udiv", "sdiv", "lshr", "ashr",
    "sext", "zext", "trunc", "freeze",
}  # fmt: skip
"What is worked out of an id and still one: not comparisons, nor what memory holds."


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


class LaunchValues:
    """The values of one kernel at one launch, as far as they are known."""

    def __init__(
        self,
        function: IRFunction,
        span: NDRange,
        scalars: Mapping[int, int],
        contents: Mapping[int, Contents],
    ) -> None:
        self.span = span
        self.by_result = function.by_result()
        self._contents = {name: contents[n] for n, name in enumerate(function.parameters) if n in contents}
        self._known: dict[str, float | None] = {
            name: float(scalars[place]) if place in scalars else None
            for place, name in enumerate(function.parameters)
        }
        self._apart: dict[str, int] = {}

    def value(self, operand: str, depth: int = 0) -> float | None:
        """The value of an operand; of an id the mean, of data under a mask half of the mask."""
        if not operand.startswith("%"):
            try:
                return float(int(operand))
            except ValueError:
                return None
        if operand in self._known:
            return self._known[operand]
        self._known[operand] = None
        instruction = self.by_result.get(operand)
        if instruction is not None and depth < 60:
            self._known[operand] = self._value_of(instruction, depth)
        return self._known[operand]

    def _value_of(self, instruction: Instruction, depth: int) -> float | None:
        if instruction.opcode == "call":
            return self._size(instruction)
        values = [self.value(operand, depth + 1) for operand in instruction.operands]
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

    def held(self, value: str) -> Contents | None:
        """What the array holds that a value was read from, where that is known."""
        for _ in range(6):
            instruction = self.by_result.get(value)
            if instruction is None or instruction.opcode not in _READING or not instruction.operands:
                return None
            value = instruction.operands[0]
            if value in self._contents:
                return self._contents[value]
        return None

    def told_apart(self, value: str, depth: int = 0) -> int:
        """How many work-items a value tells apart: all of a dimension where it comes from a global id, those
        of a group where from a local one, 1 where it is the same for all or comes from data."""
        if value not in self._apart:
            instruction = self.by_result.get(value)
            if instruction is None or depth > 20 or instruction.opcode not in _FROM_IDS:
                return 1
            self._apart[value] = self._told_apart_by(instruction, depth)
        return self._apart[value]

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
        among = max((self.told_apart(operand, depth + 1) for operand in instruction.operands), default=1)
        last = self.value(instruction.operands[-1]) if len(instruction.operands) > 1 else None
        if among > 1 and last is not None and last >= 0:
            match instruction.opcode:  # what is left of an id tells fewer apart
                case "and":
                    return min(among, int(last) + 1)
                case "urem" | "srem":
                    return min(among, max(1, int(last)))
                case "udiv" | "sdiv":
                    return max(1, among // max(1, int(last)))
                case "lshr" | "ashr" if self.shifted_up(instruction) != last:
                    return max(1, among >> min(int(last), 62))
        return among

    def shifted_up(self, shift: Instruction) -> float | None:
        """By how much what is shifted down was shifted up before: clang extends ids like that."""
        inner = self.by_result.get(shift.operands[0]) if shift.operands else None
        return self.value(inner.operands[1]) if inner is not None and inner.opcode == "shl" else None


def _dimension(call: Instruction) -> int | None:
    """The dimension that a question for an id or a size is about, where it is a number."""
    return int(call.operands[0]) if call.operands[:1] and call.operands[0].isdigit() else None
