"""The analyses against a plain Python statement of the reference's rules, and all roots of large graphs.

    python benchmarks/analysis.py

The statement below follows the definitions word for word, queue by queue; the tests compare the native code
with it on random graphs. It is exponential where the reference is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np

from apportion.errors import AnalysisError
from apportion.program import analysis
from apportion.program.graph import Flow, Function, NodeType, ProgramGraph, StringTable

COMMUTATIVE = {"add", "fadd", "mul", "fmul", "and", "or", "xor"}
Answer = tuple[int | str, int, set[int]]  # steps or error, active, labels


class Rules:
    """The reference's five analyses of one graph, as it states them."""

    def __init__(self, graph: ProgramGraph) -> None:
        self.type = graph.node_type.tolist()
        self.text = graph.texts()
        self.function = graph.node_function.tolist()
        self.nodes = range(graph.nodes)
        self.control: list[list[int]] = [[] for _ in self.nodes]
        self.control_back: list[list[int]] = [[] for _ in self.nodes]
        self.data: list[list[int]] = [[] for _ in self.nodes]
        self.operands: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for flow, position, source, target in zip(
            graph.edge_flow.tolist(), graph.edge_position.tolist(), *graph.edges.tolist(), strict=True
        ):
            if flow == Flow.CONTROL:
                self.control[source].append(target)
                self.control_back[target].append(source)
            elif flow == Flow.DATA:
                self.data[source].append(target)
                self.operands[target].append((position, source))
        self._live: tuple[list[frozenset[int]], str | None] | None = None
        self._classes: list[set[int]] | None = None

    def eligible(self, name: str) -> list[int]:
        """The roots of an analysis."""
        if name in ("reachability", "dominance"):
            return [v for v in self.nodes if v and self.type[v] == NodeType.INSTRUCTION]
        if name == "datadep":
            return [v for v in self.nodes if v and self.type[v] == NodeType.VARIABLE]
        if name == "liveness":
            return [v for v, live in enumerate(self.live_out()[0]) if live]
        return sorted(v for members in self.classes() for v in members)

    def run(self, name: str, root: int) -> Answer:
        """One run of an analysis."""
        rule: Callable[[int], Answer] = getattr(self, name)
        return rule(root)

    def reachability(self, root: int) -> Answer:
        seen: set[int] = set()
        queue = deque([(root, 1)])
        level = pops = 0
        while queue:
            u, level = queue.popleft()
            pops += 1
            seen.add(u)
            queue.extend((v, level + 1) for v in self.control[u] if v not in seen)
        return level, pops, seen

    def datadep(self, root: int) -> Answer:
        seen: set[int] = set()
        queue = deque([(root, 0)])
        level = 0
        while queue:
            u, level = queue.popleft()
            seen.add(u)
            queue.extend((v, level + 1) for _, v in self.operands[u] if v not in seen)
        labels = {v for v in seen if self.type[v] == NodeType.INSTRUCTION}
        return level, len(labels), labels

    def dominance(self, root: int) -> Answer:
        inside = [v for v in self.nodes if v and self.function[v] == self.function[root]]
        dominators = {v: set(inside) - {root} for v in inside}
        dominators[root] = {root}
        steps, changed = 0, True
        while changed:
            changed = False
            for v in inside:
                if v == root:
                    continue
                sets = [dominators.get(p, set()) for p in self.control_back[v]]
                new = {v} | (set.intersection(*sets) if sets else set())
                if new != dominators[v]:
                    dominators[v], changed = new, True
                    steps += 1
                    if steps > 1000:
                        return "Dominance fixed-point not found in 1000 steps", 0, set()
        labels = {v for v in inside if root in dominators[v]}
        return steps, len(labels), labels

    def live_out(self) -> tuple[list[frozenset[int]], str | None]:
        """What is live after each node, and the error of the reference if it gives up."""
        if self._live is None:
            self._live = self._solve_liveness()
        return self._live

    def _solve_liveness(self) -> tuple[list[frozenset[int]], str | None]:
        live_in: list[frozenset[int]] = [frozenset() for _ in self.nodes]
        live_out = list(live_in)
        queue = deque(v for v in self.nodes if self.type[v] == NodeType.INSTRUCTION and not self.control[v])
        queued = set(queue)
        most, pops = max(2 * len(self.nodes), 5000), 0
        while queue:
            pops += 1
            if pops > most:
                return live_out, f"Failed to terminate liveness computation in {most} steps"
            u = queue.popleft()
            queued.remove(u)
            live_out[u] = frozenset().union(*(live_in[v] for v in self.control[u]))
            new = frozenset(v for _, v in self.operands[u]) | (live_out[u] - set(self.data[u]))
            if not new or new != live_in[u]:
                live_in[u] = new
                for v in self.control_back[u]:
                    if v not in queued:
                        queue.append(v)
                        queued.add(v)
        return live_out, None

    def liveness(self, root: int) -> Answer:
        labels = set(self.live_out()[0][root])
        seen: set[int] = set()
        queue = deque([(root, 1)])
        deepest = 0
        while queue:
            u, level = queue.popleft()
            if u in labels:
                deepest = max(deepest, level)
            seen.add(u)
            queue.extend((v, level + 1) for v in self.control[u] + self.data[u] if v not in seen)
        return deepest, len(labels), labels

    def classes(self) -> list[set[int]]:
        """The instructions that the reference holds for the same expression."""
        if self._classes is None:
            found: dict[tuple[str, tuple[int, ...]], set[int]] = {}
            for v in self.nodes:
                if v == 0 or self.type[v] != NodeType.INSTRUCTION or not self.operands[v]:
                    continue
                nodes = [node for _, node in sorted(self.operands[v], key=lambda operand: operand[0])]
                key = sorted(nodes) if self.text[v] in COMMUTATIVE else nodes
                found.setdefault((self.text[v], tuple(key)), set()).add(v)
            self._classes = [members for members in found.values() if len(members) > 1]
        return self._classes

    def subexpressions(self, root: int) -> Answer:
        members = next(members for members in self.classes() if root in members)
        return 2, len(members), members


def synthetic(nodes: int, functions: int = 1, *, seed: int = 0) -> ProgramGraph:
    """A program of about this many nodes: blocks of straight code, one-armed branches and loops.

    The arms are several instructions long, so that the reference's queue stays short and the peer finishes.
    """
    rng = np.random.default_rng(seed)
    kinds, texts, owner = [int(NodeType.INSTRUCTION)], ["[external]"], [0]
    edges: list[tuple[int, int, int, int]] = []

    def node(kind: NodeType, text: str, function: int) -> int:
        kinds.append(int(kind))
        texts.append(text)
        owner.append(function)
        return len(kinds) - 1

    readers: list[int] = []  # instructions that read a constant too
    for function in range(functions):
        argument = node(NodeType.VARIABLE, "i32", function)
        blocks: list[list[int]] = []
        dominator: list[int] = []  # of each block, as long as code only goes forward
        skips = False  # whether the block before the last one also leads to the next
        while not blocks or len(kinds) < nodes * (function + 1) / functions:
            here = len(blocks)
            dominator.append(_common(dominator, here - 1, here - 2) if skips else here - 1)
            above = dominator[here]
            results: list[int] = []
            while above >= 0 and len(results) < 12:
                results = blocks[above][-4:] + results
                above = dominator[above]
            block: list[int] = []
            for _ in range(int(rng.integers(4, 16))):
                u = node(NodeType.INSTRUCTION, "add", function)
                if block:
                    edges.append((Flow.CONTROL, 0, block[-1], u))
                if results and rng.random() < 0.8:
                    operand = node(NodeType.VARIABLE, "i32", function)
                    recent = results[-int(rng.integers(1, min(len(results), 12) + 1))]
                    edges.extend([(Flow.DATA, 0, recent, operand), (Flow.DATA, 0, operand, u)])
                else:
                    edges.append((Flow.DATA, 0, argument, u))
                results.append(u)
                block.append(u)
            blocks.append(block)
            readers.extend(block)
            if here > 0:
                edges.append((Flow.CONTROL, 0, blocks[here - 1][-1], block[0]))
            if skips:
                edges.append((Flow.CONTROL, 1, blocks[here - 2][-1], block[0]))
            loops = not skips and rng.random() < 0.2
            if loops:
                edges.append((Flow.CONTROL, 1, block[-1], blocks[max(dominator[here], 0)][0]))
            skips = here > 0 and not loops and not skips and rng.random() < 0.4
        edges.append((Flow.CALL, 0, 0, blocks[0][0]))
    constants = [node(NodeType.CONSTANT, "i32", 0) for _ in range(16)]
    edges.extend((Flow.DATA, 1, constants[int(rng.integers(16))], u) for u in readers)
    table = sorted(set(texts))
    flow, position, source, target = np.array(edges, np.int32).T
    return ProgramGraph(
        node_type=np.array(kinds, np.uint8),
        node_text=np.array([table.index(text) for text in texts], np.int32),
        node_full_text=np.full(len(kinds), -1, np.int32),
        node_function=np.array(owner, np.int32),
        node_block=np.zeros(len(kinds), np.int32),
        edge_flow=flow.astype(np.uint8),
        edge_position=np.ascontiguousarray(position),
        edges=np.ascontiguousarray(np.vstack([source, target])),
        strings=StringTable.of(table),
        functions=tuple(Function(f"f{i}") for i in range(functions)),
    )


def _common(dominator: list[int], a: int, b: int) -> int:
    """The nearest block that dominates both."""
    while a != b:
        if a > b:
            a = dominator[a]
        else:
            b = dominator[b]
    return a


def seconds_of(work: Callable[[], object], repeats: int = 1) -> float:
    """The least processor time of some repetitions: other work on the machine does not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def print_ratios() -> None:
    """Reference mode against the statement above, answers compared."""
    graph = synthetic(2_000)
    print(f"reference mode against plain Python, {graph.nodes:,} nodes, 20 roots")
    for name in analysis.analyses:
        eligible = analysis.eligible_roots(graph, name, "reference")
        roots = eligible[:: max(1, len(eligible) // 20)][:20]
        plain = partial(plainly, graph, name, roots.tolist())
        native = partial(analysis.run_packed, graph, name, roots, "reference")
        assert answers_of(native()) == plain(), f"{name}: the two disagree"
        slow, fast = seconds_of(plain), seconds_of(native, repeats=20)
        print(f"  {name:15} {slow / fast:8,.0f} times faster ({slow * 1e3:,.1f} ms, {fast * 1e3:.2f} ms)")


def plainly(graph: ProgramGraph, name: str, roots: list[int]) -> list[Answer]:
    """The answers of the statement above, its preparations included."""
    rules = Rules(graph)
    return [rules.run(name, root) for root in roots]


def answers_of(runs: analysis.PackedRuns) -> list[Answer]:
    """The answers of the native code, in the same form."""
    return [
        (steps if error is None else error, active, set(np.flatnonzero(runs.labels(i)).tolist()))
        for i, (steps, active, error) in enumerate(
            zip(runs.steps.tolist(), runs.active.tolist(), runs.errors, strict=True)
        )
    ]


def print_all_roots() -> None:
    """How long every eligible root of a large graph takes, labels included."""
    for nodes, functions in ((100_000, 100), (100_000, 1)):
        graph = synthetic(nodes, functions)
        print(f"all eligible roots of {graph.nodes:,} nodes in {functions} function(s)")
        for mode in analysis.modes:
            for name in analysis.analyses:
                done = 0
                start = time.process_time()
                try:
                    for chunk in analysis.packed_chunks(graph, name, mode=mode):
                        done += len(chunk)
                except AnalysisError as error:
                    print(f"  {mode:9} {name:15} {error}")
                    continue
                print(f"  {mode:9} {name:15} {time.process_time() - start:7.2f} s  {done:,} roots")


def main() -> None:
    print_ratios()
    print_all_roots()


if __name__ == "__main__":
    main()
