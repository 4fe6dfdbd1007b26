"""Networks that read a kernel's graph and its inputs: every row of the ablation, by a table of settings.

    embedding → layers → pooling → [pooled, inputs] → batch normalisation → readout

Several networks of one shape, each with its own weights, run side by side (`stacked`). Letters for shapes:
M networks, B rows, G graphs, n states of a level, H hidden, C classes or distinct labels, D pooled numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apportion.learn.nn.layers import sinusoids
from apportion.learn.nn.stacked import (
    Generators,
    StackedGRU,
    StackedLinear,
    StackedNorm,
    StackedReadout,
    drawn,
    glorot,
    linear,
)
from apportion.learn.shares.network_inputs import EdgePlan, GraphPlans, StepPlan
from apportion.learn.shares.network_settings import LAYERS, KernelNetworkSettings
from apportion.learn.shares.pooling import Clusters, GatedSum, LearnedClusters, TopK

INPUTS = 2
"Numbers beside the graph, as published: the logarithms of the work-group size and of the bytes moved."


class Messages(nn.Module):
    """One layer of ProGraML messages: gated by position, averaged, then a GRU and dropout."""

    positions: Tensor

    def __init__(self, settings: KernelNetworkSettings, positions: int, generators: Generators) -> None:
        super().__init__()
        hidden = settings.hidden
        self.dropout = settings.states_dropout
        self.message = StackedLinear(hidden, settings.flows * hidden, generators)
        self.gate = StackedLinear(hidden, hidden, generators)
        self.update = StackedGRU(hidden, generators)
        table = sinusoids(positions, hidden).expand(len(generators), -1, -1).contiguous()
        self.register_buffer("positions", table, persistent=False)

    def forward(self, state: Tensor, plan: StepPlan) -> Tensor:
        """The states of the next level."""
        models, _, hidden = state.shape
        messages = self.message(self._less(state)).view(models, -1, hidden)
        gates = 2 * torch.sigmoid(self.gate(self._less(self.positions[:, : plan.gates.table])))
        mean = plan.mean(plan.lines(messages) * plan.gates(gates))
        held = state if plan.parent is None else plan.parent(state)
        return self._less(self.update(mean, held))

    def _less(self, values: Tensor) -> Tensor:
        return F.dropout(values, self.dropout, self.training)


class Attention(nn.Module):
    """One layer of graph attention with one head (Veličković et al. 2018)."""

    def __init__(self, settings: KernelNetworkSettings, generators: Generators) -> None:
        super().__init__()
        hidden = settings.hidden
        start = glorot(hidden, hidden)
        self.map = drawn(generators, (hidden, hidden), start)
        self.source = drawn(generators, (hidden, 1), glorot(1, hidden))
        self.target = drawn(generators, (hidden, 1), glorot(1, hidden))
        self.bias = nn.Parameter(torch.zeros(len(generators), 1, hidden))

    def forward(self, state: Tensor, plan: EdgePlan) -> Tensor:
        """The states of the next level."""
        models = len(state)
        mapped = linear(state, self.map)
        own = mapped if plan.parent is None else plan.parent(mapped)
        score = plan.sources(linear(mapped, self.source)) + plan.targets(linear(own, self.target))
        score = F.leaky_relu(score, 0.2)
        with torch.no_grad():
            highest = score.new_full((models * own.shape[1],), -torch.inf)
            highest.scatter_reduce_(0, plan.own, score.view(-1), "amax")
            highest = highest[plan.own].view_as(score)
        weight = torch.exp(score - highest)
        total = plan.targets(plan.sums(weight))
        return plan.sums(plan.sources(mapped) * (weight / total)) + self.bias


class Convolution(nn.Module):
    """The weights of a graph convolution (Kipf and Welling 2017); being linear, it runs when pooled."""

    def __init__(self, settings: KernelNetworkSettings, generators: Generators) -> None:
        super().__init__()
        hidden = settings.hidden
        self.map = StackedLinear(hidden, hidden, generators, start=glorot(hidden, hidden))


@dataclass(frozen=True, eq=False)
class RowInputs:
    """Rows that ask about graphs; each network has its own."""

    place: Tensor  # (M, B) graph of each row, counted over the networks' graphs
    inputs: Tensor  # (M, B, I)
    counts: Tensor  # (M, B, 1) 0 for rows that fill up


class KernelNetwork(nn.Module):
    """Scores for rows.

    Args:
        texts: rows of the embedding.
        outputs: scores of a row.
        pooled: C, numbers that the gated sum pools to.
        positions: positions of edges that occur.
        inputs: I, numbers beside the graph.
    """

    def __init__(
        self,
        settings: KernelNetworkSettings,
        generators: Generators,
        *,
        texts: int,
        outputs: int,
        pooled: int,
        positions: int,
        inputs: int = INPUTS,
    ) -> None:
        super().__init__()
        self.settings = settings
        hidden, steps = settings.hidden, settings.steps
        self.embedding = drawn(
            generators, (texts, hidden), lambda v, generator: v.normal_(generator=generator)
        )
        self.layers = nn.ModuleList()
        for _ in range(0 if settings.layers == "none" else LAYERS):
            self.layers.append(
                Messages(settings, positions, generators) if settings.layers == "messages"
                else Attention(settings, generators) if settings.layers == "attention"
                else Convolution(settings, generators)
            )  # fmt: skip
        self.pooling: nn.Module | None = None
        width = {"mean": hidden if settings.layers == "none" else 2 * hidden, "skips": steps * hidden}
        if settings.pooling == "gated-sum":
            self.pooling = GatedSum(hidden, pooled, settings.pooling_dropout, generators)
        elif settings.pooling == "top-k":
            self.pooling = TopK(hidden, generators)
        elif settings.pooling == "clusters":
            self.pooling = Clusters(hidden, generators)
        elif settings.pooling == "learned-clusters":
            self.pooling = LearnedClusters(hidden, generators)
        width |= {"gated-sum": pooled, "top-k": hidden, "clusters": hidden, "learned-clusters": hidden}
        entering = width[settings.pooling] + inputs
        between = (hidden,) if settings.readout == "extended" else ()
        self.norm = StackedNorm(len(generators), entering)
        widths = (entering, settings.readout_hidden, *between, outputs)
        self.readout = StackedReadout(widths, settings.dropout, generators)

    def forward(self, graphs: GraphPlans, rows: RowInputs) -> Tensor:
        """(M, B, outputs)."""
        pooled = self.pooled(graphs)
        chosen = pooled.reshape(-1, pooled.shape[-1]).index_select(0, rows.place.view(-1))
        entering = torch.cat([chosen.view(*rows.place.shape, -1), rows.inputs], dim=2)
        scores: Tensor = self.readout(self.norm(entering, rows.counts))
        return scores

    def pooled(self, graphs: GraphPlans) -> Tensor:
        """(M, G, D): one vector for each graph."""
        kind, pooling = self.settings.layers, self.settings.pooling
        first = graphs.texts(self.embedding)
        if kind == "none":
            return graphs.first_mean(first)
        if kind == "convolution":
            return torch.cat([self._convolved(graphs), graphs.first_mean(first)], dim=2)
        states = [first]
        plans = graphs.steps if kind == "messages" else graphs.attention
        for step, plan in enumerate(plans):
            states.append(self.layers[step % LAYERS](states[-1], plan))
        last = states[-1]
        if pooling == "skips":
            return torch.cat([mean(state) for mean, state in zip(graphs.means, states[1:], strict=True)], 2)
        if pooling == "mean":
            both = [graphs.first_mean(first), graphs.means[-1](last)]
            # As published: the initial state comes first with messages, last with attention.
            return torch.cat(both if kind == "messages" else both[::-1], dim=2)
        assert self.pooling is not None
        pooled: Tensor = self.pooling(first, last, graphs)
        return pooled

    def _convolved(self, graphs: GraphPlans) -> Tensor:
        plan = graphs.convolutions
        pooled = plan.texts(self.embedding)
        for step in range(self.settings.steps):
            layer = self.layers[step % LAYERS]
            assert isinstance(layer, Convolution)
            share = plan.ones[self.settings.steps - 1 - step]
            pooled = torch.bmm(pooled, layer.map.weight) + share * layer.map.bias
        return pooled
