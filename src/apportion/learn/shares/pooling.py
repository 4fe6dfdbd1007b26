"""Poolings that learn: from the states of a graph's nodes to one vector, for several networks side by side.

Letters for shapes: M networks, n states, G graphs, H hidden, C pooled numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apportion.learn.nn.stacked import Generators, StackedLinear, drawn, glorot, linear, uniform
from apportion.learn.shares.colours import POOLING_ROUNDS
from apportion.learn.shares.network_inputs import GraphPlans, TopKPlan
from apportion.learn.shares.network_settings import CLUSTERS

LEARNED_CLUSTERS = 16
"Clusters where the assignment learns: fewer than the nodes of all but the smallest graphs."
_FAR = 1e6
"More than any score: it keeps graphs apart in one sort."


class GatedSum(nn.Module):
    """The readout of ProGraML: a linear map of the last state, gated by first and last, summed over nodes."""

    def __init__(self, hidden: int, pooled: int, dropout: float, generators: Generators) -> None:
        super().__init__()
        self.dropout = dropout
        self.gate = StackedLinear(2 * hidden, pooled, generators)
        self.transform = StackedLinear(hidden, pooled, generators)

    def forward(self, first: Tensor, last: Tensor, graphs: GraphPlans) -> Tensor:
        """(M, G, C)."""
        both = torch.cat([graphs.initial(first), last], dim=2)
        gate = torch.sigmoid(self.gate(F.dropout(both, self.dropout, self.training)))
        return graphs.sums(gate * self.transform(F.dropout(last, self.dropout, self.training)))


class Clusters(nn.Module):
    """Differentiable pooling to 512 clusters whose mean is taken, as published (Ying et al. 2018).

    Each node is shared out among the clusters in parts that add up to 1, and the mean over clusters adds the
    parts up again: what remains is the sum over nodes of their embedding, divided by 512, whatever the
    assignment is. So no assignment is computed, and the published one gets no gradient: it never learned. The
    embedding is two un-normalised convolutions against the edges. The second is linear, so that its sum over
    nodes is the first one's, each node as often as it receives.
    """

    def __init__(self, hidden: int, generators: Generators) -> None:
        super().__init__()
        self.first = StackedLinear(hidden, hidden, generators)
        self.second = StackedLinear(hidden, hidden, generators)

    def forward(self, first: Tensor, last: Tensor, graphs: GraphPlans) -> Tensor:
        """(M, G, H)."""
        embedded = F.relu(self.first(graphs.sent(last)))
        summed = torch.bmm(graphs.received(embedded), self.second.weight) + graphs.sizes * self.second.bias
        return summed / CLUSTERS


class LearnedClusters(nn.Module):
    """Differentiable pooling whose assignment learns: a layer reads each cluster by weights of its own.

    As in `Clusters`, embedding and assignment are each two un-normalised convolutions against the edges. The
    layer takes the place of the mean over clusters, so that it matters which nodes come together.
    """

    def __init__(self, hidden: int, generators: Generators) -> None:
        super().__init__()
        self.first = StackedLinear(hidden, hidden, generators)
        self.second = StackedLinear(hidden, hidden, generators)
        self.first_assigned = StackedLinear(hidden, hidden, generators)
        self.second_assigned = StackedLinear(hidden, LEARNED_CLUSTERS, generators)
        self.behind = StackedLinear(LEARNED_CLUSTERS * hidden, hidden, generators)

    def forward(self, first: Tensor, last: Tensor, graphs: GraphPlans) -> Tensor:
        """(M, G, H)."""
        sent = graphs.sent(last)
        embedded = self.second(graphs.resent(F.relu(self.first(sent))))
        assigned = self.second_assigned(graphs.resent(F.relu(self.first_assigned(sent))))
        parts = torch.softmax(assigned, dim=2).tensor_split(LEARNED_CLUSTERS, dim=2)
        # Divided by the nodes of the graph, which are few in one program and many in another.
        clusters = [graphs.clustered(embedded * part) / graphs.sizes for part in parts]
        return F.relu(self.behind(torch.cat(clusters, dim=2)))


class TopK(nn.Module):
    """Three rounds of convolution and selection with shared weights, then the mean over nodes that are left.

    A round keeps the 80 % of a graph's nodes that score highest, each times its score (Gao and Ji 2019).
    Nodes that cannot be told apart and compete for the last places share them.
    """

    def __init__(self, hidden: int, generators: Generators) -> None:
        super().__init__()
        self.map = StackedLinear(hidden, hidden, generators, start=glorot(hidden, hidden))
        self.score = drawn(generators, (hidden, 1), uniform(hidden**-0.5))

    def forward(self, first: Tensor, last: Tensor, graphs: GraphPlans) -> Tensor:
        """(M, G, H)."""
        plan = graphs.top
        state = plan.states(last)
        kept = torch.ones(*state.shape[:2], 1, device=state.device)
        for round_ in range(POOLING_ROUNDS):
            with torch.no_grad():
                scale = torch.rsqrt(1 + plan.into(kept))
            mapped = linear(state, self.map.weight) * scale
            state = F.relu((plan.into(mapped * kept) + mapped) * scale + self.map.bias)
            score = linear(state, self.score) / torch.linalg.vector_norm(self.score, dim=1, keepdim=True)
            with torch.no_grad():
                kept = selected(score.squeeze(2), kept.squeeze(2), plan, round_).unsqueeze(2)
            state = state * torch.tanh(score)
        share = kept * (plan.copies / plan.kept[-1]).unsqueeze(1)
        return plan.pooled(state * share)


def selected(score: Tensor, kept: Tensor, plan: TopKPlan, round_: int) -> Tensor:
    """(M, n): which part of the nodes of each state is left after a round, of scores and parts before it."""
    # 64 bits hold the number of the graph before the score.
    key = plan.graph * _FAR - score.double().clamp(-_FAR / 4, _FAR / 4)
    order = torch.argsort(key, dim=1, stable=True)
    mass = (kept * plan.copies).double()
    running = mass.gather(1, order).cumsum(1)
    # A graph's states stay together, in places that begin where the graph begins.
    before = running - mass.gather(1, order)
    base = before.index_select(1, plan.first)
    room = plan.kept[round_] - (before - base)
    left = torch.empty_like(room).scatter_(1, order, room)
    part = (left / mass.clamp(min=1e-9)).clamp(0, 1).to(kept.dtype)
    return kept * torch.where(mass > 0, part, torch.zeros_like(part))
