"""How often each block of a kernel runs for a work-item: branches divide, loops multiply by trip counts."""

from __future__ import annotations

import numpy as np

from apportion.program.kernel.conditions import Conditions
from apportion.program.kernel.control_flow import ControlFlow
from apportion.program.kernel.launch_values import LaunchValues
from apportion.program.kernel.strides import Strides
from apportion.program.kernel.trip_counts import TripCounts

_MOST_BLOCKS = 400


class BlockFrequencies:
    """The blocks of one kernel at one launch."""

    def __init__(self, flow: ControlFlow, values: LaunchValues, strides: Strides) -> None:
        self._flow, self._values, self._strides = flow, values, strides
        self._conditions = Conditions(values)
        self.trips = TripCounts(flow, values)

    def found(self) -> tuple[dict[str, float], set[str], set[str]]:
        """Block → how often it runs; the blocks in guessed loops; those behind branches that data decides."""
        if len(self._flow.order) > _MOST_BLOCKS:
            return {}, set(), set()
        loops = self._flow.loops()
        number = {block: place for place, block in enumerate(self._flow.order)}
        flow = np.zeros((len(self._flow.order), len(self._flow.order)))
        divergent: set[str] = set()
        for block, targets in self._flow.after.items():
            inside = [loop for loop in loops if block in loop]
            innermost = min(inside, key=len) if inside else None
            for target, part in self._parts(block, targets, innermost, loops).items():
                flow[number[target], number[block]] += part
            if len(set(targets)) > 1 and innermost is None and self._condition_slope(block) is None:
                divergent |= {target for target in targets if len(self._flow.after[target]) < 2}
        try:
            times = np.linalg.solve(np.eye(len(self._flow.order)) - flow, np.eye(len(self._flow.order))[:, 0])
        except np.linalg.LinAlgError:
            return {}, set(), set()
        guessed = {block for loop in loops if min(loop) in self.trips.guessed_loops for block in loop}
        return dict(zip(self._flow.order, np.clip(times, 0, 1e9).tolist(), strict=True)), guessed, divergent

    def _condition_slope(self, block: str) -> float | None:
        last = self._flow.blocks[block][-1]
        condition = self._values.by_result.get(last.operands[0]) if last.operands else None
        if condition is None:
            return 0.0
        slopes = [self._strides.slope(operand) for operand in condition.operands]
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
            trips = self.trips.count(block, loop)
            out = 1 / max(trips, 1.0)
            staying = [target for target in distinct if target not in leaving]
            return _divided(leaving, staying, out)
        if len(targets) == 2 and (likely := self._likely(block)) is not None:
            return {targets[0]: likely, targets[1]: 1 - likely}
        entering = [target for target in distinct if self._enters(target, block, loops)]
        if entering and len(entering) < len(distinct):  # a test that a loop runs at all
            rest = [target for target in distinct if target not in entering]
            return _divided(rest, entering, 0.05)
        empty = [target for target in distinct if self._flow.ends(target)]
        if empty and len(empty) < len(distinct):
            rest = [target for target in distinct if target not in empty]
            return _divided(empty, rest, 0.03)  # a work-item beyond the end of the data
        return dict.fromkeys(distinct, 1 / len(distinct))

    def _enters(self, target: str, block: str, loops: list[frozenset[str]]) -> bool:
        """Whether a block leads into a loop that it is not in, at once or by a block that leads nowhere
        else."""
        ways = {target, *(self._flow.after[target] if len(set(self._flow.after[target])) == 1 else ())}
        return any(way in inner and block not in inner for inner in loops for way in ways)

    def _likely(self, block: str) -> float | None:
        """How often the first of two ways is gone, where a comparison of known values decides."""
        last = self._flow.blocks[block][-1]
        return self._conditions.chance(last.operands[0]) if last.operands else None


def _divided(few: list[str], many: list[str], part: float) -> dict[str, float]:
    """Target → part of the times: this part to a few, the rest to the others, evenly among each."""
    return dict.fromkeys(few, part / len(few)) | dict.fromkeys(many, (1 - part) / len(many))
