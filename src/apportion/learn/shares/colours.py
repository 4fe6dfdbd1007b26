"""Nodes that a network cannot tell apart: Weisfeiler-Lehman colours, and the small graphs made of them.

The state of a node after t steps depends on nothing but its text and on what lies within t edges of it, so
all nodes of one *colour* share it, within a graph and across graphs. A *level* holds the states after one
step, one for each colour. Colours are 64-bit hashes: that two of 200,000 nodes fall together by accident has
a chance of one in a hundred million.

Letters for shapes: N nodes, E edges, G graphs, n colours of a level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.batch import FLOWS, GraphArrays
from apportion.errors import InvalidGraph

Numbers = NDArray[np.int64]
Sharing = Literal["colours", "last colours", "nodes"]
"""Which nodes share a state, and with it its dropout.

`colours`: after t steps, nodes of one colour of radius t. `last colours`: nodes of one colour of the last
radius, at every step. `nodes`: none. Without dropout all three compute the same numbers."""
POOLING_ROUNDS = 3
"Rounds of convolution and selection in TopK pooling (the thesis' port)."


@dataclass(frozen=True, eq=False)
class GraphSet:
    """Graphs end to end; node numbers run over all of them, and edges run one way."""

    text: Numbers  # (N,)
    start: Numbers  # (G + 1,) first node of each graph
    edge_start: Numbers  # (G + 1,)
    source: Numbers  # (E,)
    target: Numbers  # (E,)
    flow: Numbers  # (E,)
    position: Numbers  # (E,)

    @classmethod
    def of(cls, graphs: Iterable[GraphArrays], *, flows: int = FLOWS) -> GraphSet:
        """These graphs, without the edges of flows that models do not read."""
        text, ends, flow, position, sizes, edges = [], [], [], [], [0], [0]
        for graph in graphs:
            n = len(graph.node_text_id)
            if n == 0:
                raise InvalidGraph("A graph without nodes has no state to pool; leave it out")
            kept = graph.edge_flow < flows
            text.append(graph.node_text_id)
            ends.append(graph.edges[:, kept].astype(np.int64) + sizes[-1])
            flow.append(graph.edge_flow[kept])
            position.append(graph.edge_position[kept])
            sizes.append(sizes[-1] + n)
            edges.append(edges[-1] + int(kept.sum()))
        both = np.concatenate(ends, axis=1)
        parts = (
            np.concatenate(text), np.array(sizes), np.array(edges), both[0], both[1],
            np.concatenate(flow), np.concatenate(position),
        )  # fmt: skip
        return cls(*(part.astype(np.int64) for part in parts))

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.text)

    @property
    def graphs(self) -> int:
        """G."""
        return len(self.start) - 1

    @cached_property
    def graph(self) -> Numbers:
        """(N,) the graph of each node."""
        return np.repeat(np.arange(self.graphs), np.diff(self.start))

    @cached_property
    def in_degree(self) -> Numbers:
        """(N,) edges that end at each node."""
        return np.bincount(self.target, minlength=self.nodes)

    @cached_property
    def proper(self) -> NDArray[np.bool_]:
        """(E,) whether an edge leads to another node: convolutions add a loop to every node."""
        return np.not_equal(self.source, self.target)

    def both_ways(self, *, flows: int = FLOWS) -> GraphSet:
        """The same with a second edge against each edge, of a flow of its own."""
        graph = np.repeat(np.arange(self.graphs), np.diff(self.edge_start))
        order = np.argsort(np.concatenate([graph, graph]), kind="stable")

        def twice(one: Numbers, other: Numbers) -> Numbers:
            return np.concatenate([one, other])[order]

        return GraphSet(
            self.text, self.start, 2 * self.edge_start,
            twice(self.source, self.target), twice(self.target, self.source),
            twice(self.flow, self.flow + flows), twice(self.position, self.position),
        )  # fmt: skip

    def chosen(self, graphs: Numbers) -> tuple[GraphSet, Numbers]:
        """Some of the graphs, in the order given; and the number that each of their nodes has here."""
        nodes, sizes = _spans(self.start, graphs)
        edges, counts = _spans(self.edge_start, graphs)
        first = np.concatenate([[0], np.cumsum(sizes)])
        shift = np.repeat(first[:-1] - self.start[graphs], counts)
        few = GraphSet(
            self.text[nodes], first, np.concatenate([[0], np.cumsum(counts)]),
            self.source[edges] + shift, self.target[edges] + shift, self.flow[edges], self.position[edges],
        )  # fmt: skip
        return few, nodes


@dataclass(frozen=True, eq=False)
class Colouring:
    """The colours of every node of a set of graphs."""

    levels: tuple[Numbers, ...]  # (N,) each: at the start, and after each step
    sent: Numbers  # (N,) nodes that send to equal nodes after the last step
    resent: Numbers  # (N,) nodes that send to nodes of one colour of `sent`
    pooled: Numbers  # (N,) nodes of a graph that TopK pooling cannot tell apart

    @classmethod
    def of(
        cls, graphs: GraphSet, steps: int, *, typed: bool = True, sharing: Sharing = "colours"
    ) -> Colouring:
        """The colours for a network of so many steps.

        Args:
            typed: the network tells flows and positions of edges apart.
        """
        if sharing == "nodes":
            itself = np.arange(graphs.nodes)
            return cls((itself,) * (steps + 1), itself, itself, itself)
        loop = (~graphs.proper).astype(np.int64)
        token = 2 * (graphs.flow * 8192 + graphs.position) + loop if typed else loop
        levels = [_numbered(graphs.text.astype(np.uint64))]
        for _ in range(steps):
            levels.append(_refined(levels[-1], graphs.target, graphs.source, token))
        last = levels[-1]
        if sharing == "last colours":
            levels = [last] * len(levels)
        nothing = np.zeros_like(last)
        plain = nothing[graphs.source]
        sent = _refined(nothing, graphs.source, graphs.target, plain, colour=last)
        resent = _refined(nothing, graphs.source, graphs.target, plain, colour=sent)
        pooled = _numbered(_mixed(graphs.graph) + _mixed(_mixed(last)))
        for _ in range(POOLING_ROUNDS):
            pooled = _refined(pooled, graphs.target, graphs.source, loop)
        return cls(tuple(levels), sent, resent, pooled)


@dataclass(frozen=True, eq=False)
class Level:
    """The states after one step: one for each colour."""

    count: int
    colour: Numbers  # (N,) of each node
    example: Numbers  # (n,) a node of each colour

    @classmethod
    def of(cls, colour: Numbers) -> Level:
        """Colours that need not be numbered without gaps."""
        used = np.zeros(int(colour.max()) + 1, bool)
        used[colour] = True
        number = (np.cumsum(used) - 1)[colour]
        example = np.empty(int(used.sum()), np.int64)
        example[number] = np.arange(len(colour))
        return cls(len(example), number, example)

    def shares(
        self, graph: Numbers, weight: NDArray[np.float64]
    ) -> tuple[Numbers, Numbers, NDArray[np.float64]]:
        """Graph, colour and the summed weight of a graph's nodes of that colour, of all pairs there are."""
        pairs, inverse = np.unique(graph * self.count + self.colour, return_inverse=True)
        summed: NDArray[np.float64] = np.bincount(inverse, weight, len(pairs)).astype(np.float64)
        return pairs // self.count, pairs % self.count, summed

    def edges_at(self, at: Numbers, usable: NDArray[np.bool_] | None = None) -> tuple[Numbers, Numbers]:
        """Usable edges that touch the example of a colour with their end `at` (E,), and that colour."""
        place = np.full(len(self.colour), -1)
        place[self.example] = np.arange(self.count)
        touching = place[at] >= 0
        chosen = np.flatnonzero(touching if usable is None else touching & usable)
        return chosen, place[at[chosen]]


def _refined(
    own: Numbers, at: Numbers, other: Numbers, token: Numbers, *, colour: Numbers | None = None
) -> Numbers:
    """Colours that also tell apart what the edges `at` a node bring from its `other` ends."""
    brought = _mixed(_mixed((own if colour is None else colour)[other]) + _mixed(token + 1_000_003))
    # Two halves, each summed without loss in 64-bit integers by way of floats of 53 bits.
    low = np.bincount(at, (brought & np.uint64(0xFFFFFFFF)).astype(np.float64), len(own))
    high = np.bincount(at, (brought >> np.uint64(32)).astype(np.float64), len(own))
    sums = _mixed(low.astype(np.int64)) * np.uint64(3) + _mixed(high.astype(np.int64))
    return _numbered(_mixed(_mixed(own) + _mixed(sums)))


def _numbered(hashes: NDArray[np.uint64]) -> Numbers:
    return np.unique(hashes, return_inverse=True)[1].astype(np.int64)


def _mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the input moves half of the output's."""
    x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _spans(start: Numbers, chosen: Numbers | Sequence[int]) -> tuple[Numbers, Numbers]:
    """The numbers of the spans that begin at `start[i]`, one span after the other, and their lengths."""
    chosen = np.asarray(chosen, np.int64)
    lengths = start[chosen + 1] - start[chosen]
    before = np.cumsum(lengths) - lengths
    return np.repeat(start[chosen] - before, lengths) + np.arange(int(lengths.sum())), lengths
