"""What configurations change in a graph: which nodes they reach in each layer, and which never.

With L layers of messages only nodes within L steps of a configurable node can differ between configurations.
Nodes are numbered anew so that those reached after l layers are the first n_l; everything that a network does
to them alone is then a slice. Nothing here needs torch.

N nodes, E edges, M configurable nodes, C configurations, K options of all configurable nodes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.configurations import ConfiguredGraph
from apportion.data.published.tpugraphs import TensorGraph
from apportion.errors import InvalidSetting

Relations = Literal["both", "each"]
"Neighbours of both directions in one mean with the node itself, or producers and consumers in a mean each."


@dataclass(frozen=True, eq=False)
class SenderSums:
    """Weighted sums of senders for each receiver, as compressed rows."""

    start: NDArray[np.int64]  # (R + 1,): where each receiver's senders begin
    sender: NDArray[np.int64]  # (S,)
    weight: NDArray[np.float32]  # (S,)
    senders: int
    "How many there are; a sender that nobody listens to counts."

    @classmethod
    def of(
        cls,
        receiver: NDArray[Any],
        sender: NDArray[Any],
        weight: NDArray[Any],
        *,
        receivers: int,
        senders: int,
    ) -> Self:
        """The sums of these (S,) terms."""
        order = np.argsort(receiver, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(receiver, minlength=receivers))])
        return cls(
            start.astype(np.int64), sender[order].astype(np.int64), weight[order].astype(np.float32), senders
        )

    @property
    def receivers(self) -> int:
        """R."""
        return len(self.start) - 1

    @property
    def receiver(self) -> NDArray[np.int64]:
        """(S,) who gets each term."""
        return np.repeat(np.arange(self.receivers), np.diff(self.start))

    def block(self, receivers: int, first: int, last: int) -> SenderSums:
        """What the first receivers get from the senders `first` to `last`, which are numbered from 0 then."""
        receiver = self.receiver
        kept = (receiver < receivers) & (self.sender >= first) & (self.sender < last)
        return SenderSums.of(
            receiver[kept], self.sender[kept] - first, self.weight[kept],
            receivers=receivers, senders=last - first,
        )  # fmt: skip

    def transposed(self) -> SenderSums:
        """Receivers as senders: what carries gradients back."""
        return SenderSums.of(
            self.sender, self.receiver, self.weight, receivers=self.senders, senders=self.receivers
        )

    @classmethod
    def stacked(cls, several: Sequence[SenderSums]) -> SenderSums:
        """One sum over several kinds of senders, which stand one kind after the other."""
        senders = several[0].senders
        return SenderSums.of(
            np.concatenate([one.receiver for one in several]),
            np.concatenate([one.sender + number * senders for number, one in enumerate(several)]),
            np.concatenate([one.weight for one in several]),
            receivers=several[0].receivers, senders=senders * len(several),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ReachedNodes:
    """How far configurations reach, layer by layer."""

    order: NDArray[np.int64]  # (N,): the nodes in their new order, soonest reached first
    reached: tuple[int, ...]  # (L + 1,): n_0 = M, then how many are reached after each layer
    relations: tuple[SenderSums, ...]
    "Whom each node, in the new order, listens to: one mean, or one for producers and one for consumers."

    @classmethod
    def of(
        cls,
        nodes: int,
        edges: NDArray[np.int64],
        configurable: NDArray[np.int64],
        *,
        layers: int,
        relations: Relations = "both",
    ) -> Self:
        """The reach of configurable nodes (M,) over edges (E, 2) of consumer and producer."""
        level = np.full(nodes, layers + 1, np.int64)
        level[configurable] = 0
        for layer in range(1, layers + 1):
            known = level < layer
            for one, other in ((0, 1), (1, 0)):
                touched = edges[known[edges[:, one]], other]
                level[touched] = np.minimum(level[touched], layer)
        # Configurable nodes keep the order in which their codes stand.
        later = np.flatnonzero(level > 0)
        order = np.concatenate([configurable, later[np.argsort(level[later], kind="stable")]])
        place = np.empty(nodes, np.int64)
        place[order] = np.arange(nodes)
        reached = tuple(int((level <= layer).sum()) for layer in range(layers + 1))
        return cls(order, reached, _relations(nodes, place[edges], relations))


def _relations(nodes: int, edges: NDArray[np.int64], kind: Relations) -> tuple[SenderSums, ...]:
    consumer, producer = edges[:, 0], edges[:, 1]
    if kind == "each":
        return (_mean(consumer, producer, nodes), _mean(producer, consumer, nodes))
    itself = np.arange(nodes)
    receiver = np.concatenate([consumer, producer, itself])
    return (_mean(receiver, np.concatenate([producer, consumer, itself]), nodes),)


def _mean(receiver: NDArray[np.int64], sender: NDArray[np.int64], nodes: int) -> SenderSums:
    degree = np.bincount(receiver, minlength=nodes)
    return SenderSums.of(receiver, sender, 1 / degree[receiver], receivers=nodes, senders=nodes)


@dataclass(frozen=True, eq=False)
class Selection:
    """The part of a graph that a network looks at: some nodes, and the edges between them."""

    nodes: NDArray[np.int64]  # (N',) in rising order
    edges: NDArray[np.int64]  # (E', 2) between places in `nodes`
    configurable: NDArray[np.int64]  # (M',) places in `nodes`
    columns: NDArray[np.int64]  # (M',): which of the graph's configurable nodes these are


def select(
    graph: TensorGraph,
    configurable: NDArray[np.int64],
    *,
    hops: int = 0,
    drop: float = 0.0,
    dropped: Literal["edges", "segments"] = "edges",
    random: np.random.Generator | None = None,
) -> Selection:
    """Some of a graph's nodes and edges.

    Args:
        hops: keep only nodes so many steps from a configurable one; 0 keeps all.
        drop: the part of the edges, or of the segments, that is left out at random.
        dropped: which of the two.
        random: draws them; needed where something is dropped.
    """
    kept = np.ones(graph.nodes, np.bool_)
    edges = graph.edge_index
    if hops and len(configurable):
        kept = within(graph, configurable, hops)
    if drop:
        if random is None:
            raise InvalidSetting("Dropping at random needs a generator of random numbers")
        if dropped == "segments":
            kept &= _kept_segments(graph, configurable, drop, random)
        else:
            edges = edges[random.random(len(edges)) >= drop]
    nodes = np.flatnonzero(kept)
    place = np.cumsum(kept) - 1
    inside = kept[edges[:, 0]] & kept[edges[:, 1]]
    columns = np.flatnonzero(kept[configurable])
    return Selection(nodes, place[edges[inside]], place[configurable[columns]], columns)


def within(graph: TensorGraph, configurable: NDArray[np.int64], hops: int) -> NDArray[np.bool_]:
    """(N,) whether a node is at most so many steps, in either direction, from a configurable one."""
    near = np.zeros(graph.nodes, np.bool_)
    near[configurable] = True
    for _ in range(hops):
        wider = near.copy()
        for one, other in ((0, 1), (1, 0)):
            wider[graph.edge_index[near[graph.edge_index[:, one]], other]] = True
        near = wider
    return near


def _kept_segments(
    graph: TensorGraph, configurable: NDArray[np.int64], drop: float, random: np.random.Generator
) -> NDArray[np.bool_]:
    """(N,) the nodes of segments that are not dropped; one with a configurable node always stays."""
    # A last split at N begins no segment.
    segment = np.searchsorted(graph.node_splits[:-1], np.arange(graph.nodes), side="right")
    count = int(segment.max()) + 1
    stays = random.random(count) >= drop
    candidates = np.unique(segment[configurable]) if len(configurable) else np.arange(count)
    if not stays[candidates].any():
        stays[random.choice(candidates)] = True
    kept: NDArray[np.bool_] = stays[segment]
    return kept


def configurable_of(stored: ConfiguredGraph) -> NDArray[np.int64]:
    """(M,) the nodes that configurations change; none where a configuration is of the whole graph (tiles)."""
    found: NDArray[np.int64] = np.asarray(stored.arrays.get("node_config_ids", np.zeros(0)), np.int64)
    if len(np.unique(found)) < len(found):
        raise InvalidSetting(f"{stored.name}: a configurable node is named twice")
    return found


def logarithmic(features: NDArray[Any]) -> NDArray[np.float32]:
    """Features with their magnitudes as logarithms: sizes reach billions, flags stay what they are."""
    compressed: NDArray[np.float32] = (np.sign(features) * np.log1p(np.abs(features))).astype(np.float32)
    return compressed
