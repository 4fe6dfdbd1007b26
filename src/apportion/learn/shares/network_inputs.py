"""What the networks of kernels read: plans of sums over the colours of some graphs, and the rows that ask.

A row of the dataset is a kernel with its inputs; rows of one graph share the graph's pooled vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.data.batch import FLOWS
from apportion.learn.nn.gathering import SumPlan
from apportion.learn.nn.stacked import PARTS
from apportion.learn.shares.colours import POOLING_ROUNDS, Colouring, GraphSet, Level, Numbers
from apportion.learn.shares.network_settings import KEPT


@dataclass(frozen=True, eq=False)
class StepPlan:
    """From one level's states to the next: who a state goes on from, and the messages that it takes."""

    parent: SumPlan | None
    "None where each state goes on from the one at its own place."
    lines: SumPlan
    "Messages that are used: (state, flow) → one line for each position it is sent at."
    gates: SumPlan
    "The gate of each line."
    mean: SumPlan
    "The mean of the lines that reach each state."


@dataclass(frozen=True, eq=False)
class EdgePlan:
    """As `StepPlan`, for attention: each edge, the state's own among them, has a line."""

    parent: SumPlan | None
    sources: SumPlan
    targets: SumPlan
    sums: SumPlan
    own: Tensor  # (M · E,) the target of each line, over all models


@dataclass(frozen=True, eq=False)
class TopKPlan:
    """The graphs after the last step, for TopK pooling: one state for each colour of each graph."""

    states: SumPlan
    into: SumPlan
    "Σ over the edges into each state, without its own."
    pooled: SumPlan
    "Σ over the states of each graph."
    graph: Tensor  # (n,)
    first: Tensor  # (n,) the first state of its graph
    copies: Tensor  # (n,) nodes that share the state
    kept: tuple[Tensor, ...]  # (n,) each: nodes of its graph that are left after a round


@dataclass(frozen=True, eq=False)
class ConvolutionPlan:
    """Mean pooling of graph convolutions: they are linear in the texts, so only sums of texts remain."""

    texts: SumPlan
    ones: tuple[Tensor, ...]  # (G, 1) each: what a bias that is added before so many convolutions comes to


class GraphPlans:
    """Some graphs on a device; each plan is made when a network first asks for it.

    Args:
        graphs, colouring: all graphs, and their colours.
        chosen: the graphs that are wanted, by number.
        texts: rows of the embedding.
        models: M.
        flows: kinds of edges.
    """

    def __init__(
        self,
        graphs: GraphSet,
        colouring: Colouring,
        chosen: Numbers,
        *,
        texts: int,
        models: int,
        device: torch.device,
        flows: int = FLOWS,
    ) -> None:
        self.few, self._nodes = graphs.chosen(np.asarray(chosen, np.int64))
        self.graphs = self.few.graphs
        self._colouring, self._build = colouring, _Builder(self.few, models, device, flows)
        self._texts = texts

    @cached_property
    def _levels(self) -> list[Level]:
        return [Level.of(colour[self._nodes]) for colour in self._colouring.levels]

    @cached_property
    def _sender(self) -> Level:
        return Level.of(self._colouring.sent[self._nodes])

    @cached_property
    def texts(self) -> SumPlan:
        """The embedding of each state at the start."""
        return self._build.one(self.few.text[self._levels[0].example], self._texts)

    @cached_property
    def steps(self) -> tuple[StepPlan, ...]:
        """For messages."""
        return tuple(self._build.step(*pair) for pair in pairwise(self._levels))

    @cached_property
    def attention(self) -> tuple[EdgePlan, ...]:
        """For attention."""
        return tuple(self._build.attention(*pair) for pair in pairwise(self._levels))

    @cached_property
    def first_mean(self) -> SumPlan:
        """Mean over the nodes of each graph, at the start."""
        return self._mean(self._levels[0])

    @cached_property
    def means(self) -> tuple[SumPlan, ...]:
        """Mean over the nodes of each graph, after each step."""
        return tuple(self._mean(level) for level in self._levels[1:])

    @cached_property
    def sums(self) -> SumPlan:
        """Sum over the nodes of each graph, after the last step."""
        return self._build.pool(self._levels[-1], np.ones(self.few.nodes))

    @cached_property
    def initial(self) -> SumPlan:
        """The state at the start of each state after the last step."""
        first, last = self._levels[0], self._levels[-1]
        return self._build.one(first.colour[last.example], _full(first.count))

    @cached_property
    def sent(self) -> SumPlan:
        """Sum over the targets of each colour of senders."""
        return self._build.sent(self._sender, self._levels[-1])

    @cached_property
    def _resender(self) -> Level:
        return Level.of(self._colouring.resent[self._nodes])

    @cached_property
    def resent(self) -> SumPlan:
        """Sum over the targets of each colour of those that send to senders."""
        return self._build.sent(self._resender, self._sender)

    @cached_property
    def clustered(self) -> SumPlan:
        """Sum over the nodes of each graph, by their colours as `resent` has them."""
        return self._build.pool(self._resender, np.ones(self.few.nodes))

    @cached_property
    def received(self) -> SumPlan:
        """Sum over the senders of each graph, each as often as it receives."""
        return self._build.pool(self._sender, self.few.in_degree.astype(np.float64))

    @cached_property
    def sizes(self) -> Tensor:
        """(G, 1) nodes."""
        return self._build.column(np.diff(self.few.start)[:, None])

    @cached_property
    def top(self) -> TopKPlan:
        """For TopK pooling."""
        return self._build.top(Level.of(self._colouring.pooled[self._nodes]), self._levels[-1])

    @cached_property
    def convolutions(self) -> ConvolutionPlan:
        """For graph convolutions."""
        return self._build.convolutions(len(self._colouring.levels) - 1, self._texts)

    def _mean(self, level: Level) -> SumPlan:
        return self._build.pool(level, (1 / np.diff(self.few.start))[self.few.graph])


class _Builder:
    def __init__(self, graphs: GraphSet, models: int, device: torch.device, flows: int) -> None:
        self.graphs, self.models, self.device, self.flows = graphs, models, device, flows

    def plan(
        self,
        row: Numbers,
        index: Numbers,
        weight: NDArray[np.float64] | None = None,
        *,
        rows: int,
        table: int,
    ) -> SumPlan:
        return SumPlan.of(row, index, weight, rows=rows, table=table, models=self.models, device=self.device)

    def column(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.device)

    def one(self, index: Numbers, table: int) -> SumPlan:
        """A line for each index; filled up with lines of nothing."""
        return self.plan(np.arange(len(index)), index, rows=_full(len(index)), table=table)

    def parent(self, below: Level, level: Level) -> SumPlan | None:
        index = below.colour[level.example]
        if below.count == level.count and np.array_equal(index, np.arange(level.count)):
            return None
        return self.plan(np.arange(level.count), index, rows=_full(level.count), table=_full(below.count))

    def step(self, below: Level, level: Level) -> StepPlan:
        graphs = self.graphs
        edge, row = level.edges_at(graphs.target)
        position, line = (
            graphs.position[edge],
            below.colour[graphs.source[edge]] * self.flows + graphs.flow[edge],
        )
        highest = int(graphs.position.max(initial=0)) + 1
        used, slot = _used(line * highest + position, below.count * self.flows * highest)
        slots = _full(len(used))
        degree = np.bincount(row, minlength=level.count)
        each = np.arange(len(used))
        return StepPlan(
            self.parent(below, level),
            self.plan(each, used // highest, rows=slots, table=_full(below.count) * self.flows),
            self.plan(each, used % highest, rows=slots, table=highest),
            self.plan(row, slot, 1 / degree[row], rows=_full(level.count), table=slots),
        )

    def attention(self, below: Level, level: Level) -> EdgePlan:
        graphs = self.graphs
        edge, row = level.edges_at(graphs.target, graphs.proper)
        source = below.colour[graphs.source[edge]]
        source = np.concatenate([source, below.colour[level.example]])
        row = np.concatenate([row, np.arange(level.count)])
        lines, rows = len(row), _full(level.count)
        each = np.arange(lines)
        number = torch.arange(self.models, device=self.device).unsqueeze(1)
        own = (torch.from_numpy(row).to(self.device) + number * rows).view(-1)
        return EdgePlan(
            self.parent(below, level),
            self.plan(each, source, rows=lines, table=_full(below.count)),
            self.plan(each, row, rows=lines, table=rows),
            self.plan(row, each, rows=rows, table=lines),
            own,
        )

    def pool(self, level: Level, weight: NDArray[np.float64]) -> SumPlan:
        graph, colour, share = level.shares(self.graphs.graph, weight)
        return self.plan(graph, colour, share, rows=self.graphs.graphs, table=_full(level.count))

    def sent(self, sender: Level, last: Level) -> SumPlan:
        edge, row = sender.edges_at(self.graphs.source)
        index = last.colour[self.graphs.target[edge]]
        return self.plan(row, index, rows=_full(sender.count), table=_full(last.count))

    def top(self, level: Level, last: Level) -> TopKPlan:
        graphs = self.graphs
        # By graph, so that one running sum over all states serves every graph.
        order = np.argsort(graphs.graph[level.example], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(level.count)
        sorted_ = Level(level.count, place[level.colour], level.example[order])
        edge, row = sorted_.edges_at(graphs.target, graphs.proper)
        each, count = np.arange(level.count), _full(level.count)
        # What fills up belongs to the last graph and stands for no node.
        graph = np.append(graphs.graph[sorted_.example], np.full(count - level.count, graphs.graphs - 1))
        left, kept = np.diff(graphs.start), []
        for _ in range(POOLING_ROUNDS):
            left = np.ceil(KEPT * left)
            kept.append(self.column(left[graph]))
        number = torch.from_numpy(graph).to(self.device)
        return TopKPlan(
            self.plan(each, last.colour[sorted_.example], rows=count, table=_full(last.count)),
            self.plan(row, sorted_.colour[graphs.source[edge]], rows=count, table=count),
            self.plan(graph[each], each, rows=graphs.graphs, table=count),
            number,
            torch.searchsorted(number, number),
            self.column(np.bincount(sorted_.colour, minlength=count)),
            tuple(kept),
        )

    def convolutions(self, steps: int, texts: int) -> ConvolutionPlan:
        """Mean over nodes of Â to some power, from the left: (G, N), then summed over nodes of one text."""
        graphs = self.graphs
        source, target = graphs.source[graphs.proper], graphs.target[graphs.proper]
        scale = 1 / np.sqrt(1.0 + np.bincount(target, minlength=graphs.nodes))
        share = 1 / np.diff(graphs.start)[graphs.graph]
        ones = []
        for _ in range(steps):
            ones.append(np.bincount(graphs.graph, share, graphs.graphs))
            sent = (share * scale)[target] * scale[source]
            share = share * scale**2 + np.bincount(source, sent, graphs.nodes)
        pairs, inverse = np.unique(graphs.graph * texts + graphs.text, return_inverse=True)
        weight = np.bincount(inverse, share, len(pairs)).astype(np.float64)
        return ConvolutionPlan(
            self.plan(pairs // texts, pairs % texts, weight, rows=graphs.graphs, table=texts),
            tuple(self.column(one[:, None]) for one in ones),
        )


def _used(values: Numbers, domain: int) -> tuple[Numbers, Numbers]:
    """As `np.unique` with the inverse, for numbers below `domain`: faster than sorting them."""
    there = np.zeros(domain, bool)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


def _full(count: int) -> int:
    """So many rows that they can be cut into equal parts."""
    return -(-count // PARTS) * PARTS
