"""How often conditions hold, where ids, scalars or what arrays hold decide."""

from __future__ import annotations

import numpy as np

from apportion.program.kernel.instructions import Instruction
from apportion.program.kernel.launch_values import LaunchValues

_LESS = {"slt", "ult", "sle", "ule"}
"Comparisons of integers that ask whether the first is the smaller."


class Conditions:
    """The conditions of one kernel at one launch."""

    def __init__(self, values: LaunchValues) -> None:
        self._values = values

    def chance(self, value: str, depth: int = 0) -> float | None:
        """How often a condition holds; of several at once, those that are not known half the time."""
        condition = self._values.by_result.get(value)
        if condition is None or depth > 10:
            return None
        if condition.opcode in ("and", "or", "select", "xor") and condition.type == "i1":
            return self._joined(condition, depth)
        if condition.opcode != "icmp":
            return None
        if condition.element in ("eq", "ne") and (equal := self._equal(condition.operands)) is not None:
            return equal if condition.element == "eq" else 1 - equal
        a, b = (self._values.value(operand) for operand in condition.operands)
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
        among = max(self._values.told_apart(operand) for operand in operands)
        if among > 1:
            return 1 / among
        for value, other in (operands, operands[::-1]):
            held, wanted = self._values.held(value), self._values.value(other)
            if held is None or wanted is None or held.mean < 0:
                continue
            if held.mean <= 1:  # a flag
                return 1 - held.mean if wanted == 0 else held.mean if wanted == 1 else 0.0
            return 1 / (2 * held.mean + 1) if 0 <= wanted <= 2 * held.mean else 0.0
        return None

    def _joined(self, condition: Instruction, depth: int) -> float | None:
        """`and`, `or` and `not`, as clang writes them: a choice between a condition and a constant too."""
        chances = [self.chance(operand, depth + 1) for operand in condition.operands]
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
        told = [self._values.told_apart(operand) for operand in operands]
        if told[0] > 1 and told[1] == 1 and a > 0:
            # Of an id itself nothing is beyond the range; what is worked out of one may be a little.
            edge = 0.0 if 2 * a == told[0] else 0.001
            return float(np.clip(b / (2 * a), edge, 1 - edge))
        if told[1] > 1 and told[0] == 1 and b > 0:
            edge = 0.0 if 2 * b == told[1] else 0.001
            return float(np.clip(1 - a / (2 * b), edge, 1 - edge))
        return None
