"""The blocks of a function: where each goes, and its loops."""

from __future__ import annotations

from collections import defaultdict

from apportion.program.kernel.instructions import Instruction, IRFunction


class ControlFlow:
    """The blocks of one function in their order, and the blocks that each may go to."""

    def __init__(self, function: IRFunction) -> None:
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

    def ends(self, block: str) -> bool:
        """Whether a block does nothing but return."""
        return self.blocks[block][-1].opcode == "ret" and len(self.blocks[block]) <= 2

    def loops(self) -> list[frozenset[str]]:
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
