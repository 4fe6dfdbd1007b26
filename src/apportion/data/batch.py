"""Graphs packed end to end, and batches of them: the arrays that every kind of model reads.

An edge runs both ways: of F flows there are K = 2F *kinds*, `flow` along the edge and `F + flow` against it.
A message is looked up by its *slot*, `source * K + kind` (thesis, Eq. 4.1). Each graph's edges are sorted
once, when it is packed; a batch only joins sorted runs. Letters for shapes: N nodes, E edges (both ways
counted), B graphs in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidGraph, InvalidSetting

FLOWS = 3
"Control, data and call; type edges belong to a variant of the graph that no published model reads."
POSITIONS = 4096
"Positions that a model tells apart; the last stands for all beyond it."


class GraphArrays(Protocol):
    """What a graph must have to be packed."""

    @property
    def node_text_id(self) -> NDArray[np.int32]: ...  # (N,) vocabulary ids
    @property
    def edges(self) -> NDArray[np.int32]: ...  # (2, E): source, target
    @property
    def edge_flow(self) -> NDArray[np.uint8]: ...  # (E,)
    @property
    def edge_position(self) -> NDArray[np.int32]: ...  # (E,)


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph as models see it: texts as vocabulary ids, edges with flow and position."""

    node_text_id: NDArray[np.int32]  # (N,)
    edges: NDArray[np.int32]  # (2, E): source, target
    edge_flow: NDArray[np.uint8]  # (E,)
    edge_position: NDArray[np.int32]  # (E,)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        names = ("node_text_id", "edges", "edge_flow", "edge_position")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Rows:
    """Edges grouped in rows: those of row i are `start[i]` to `start[i + 1]` of the other arrays."""

    start: NDArray[np.int32]  # (rows + 1,)
    index: NDArray[np.int32]  # (E,) what stands at the other end of the edge
    position: NDArray[np.int16]  # (E,)

    @property
    def row(self) -> NDArray[np.int32]:
        """(E,) the row of each edge."""
        return np.repeat(np.arange(len(self.start) - 1, dtype=np.int32), np.diff(self.start))

    def part(self, first: NDArray[np.int64], counts: NDArray[np.int64], shift: NDArray[np.int64]) -> Rows:
        """Some runs of rows: where each begins, how many rows it has, and what is taken off its index."""
        edges = (self.start[first + counts] - self.start[first]).astype(np.int64)
        chosen = _spans(self.start[first].astype(np.int64), edges)
        return Rows(
            _starts(np.diff(self.start)[_spans(first, counts)]).astype(np.int32),
            self.index[chosen] - np.repeat(shift.astype(np.int32), edges),
            self.position[chosen],
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """Several graphs side by side as one, each with the node that is asked about."""

    kinds: int
    text: NDArray[np.int32]  # (N,)
    graph_start: NDArray[np.int64]  # (B + 1,) first node of each graph
    root: NDArray[np.int64]  # (B,) the node asked about, counted over the batch
    incoming: Rows  # a row per target: slots of the messages it gets
    outgoing: Rows  # a row per slot: targets that get its message
    labels: NDArray[np.uint8] | None = None  # (N,)

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.text)

    @property
    def graphs(self) -> int:
        """B."""
        return len(self.root)

    def part(self, graphs: NDArray[np.integer[Any]] | Sequence[int]) -> Batch:
        """Some of its graphs, by their places in it."""
        chosen = np.asarray(graphs, np.int64)
        first, sizes = self.graph_start[chosen], np.diff(self.graph_start)[chosen]
        start = _starts(sizes)
        nodes, shift = _spans(first, sizes), first - start[:-1]
        return Batch(
            self.kinds,
            self.text[nodes],
            start,
            self.root[chosen] - shift,
            self.incoming.part(first, sizes, shift * self.kinds),
            self.outgoing.part(first * self.kinds, sizes * self.kinds, shift),
            None if self.labels is None else self.labels[nodes],
        )

    def first_alike(self) -> NDArray[np.int64]:
        """(B,): of each graph the place of the first one in the run of equal graphs that it stands in.

        One graph with several roots stands in a batch several times, most often side by side.
        """
        bounds, rows = self.graph_start, self.incoming
        ends = rows.start[bounds]
        degree = np.diff(rows.start)
        place = np.arange(self.graphs)

        def alike(a: int, b: int) -> bool:
            nodes = [slice(bounds[one], bounds[one + 1]) for one in (a, b)]
            edges = [slice(ends[one], ends[one + 1]) for one in (a, b)]
            shift = np.int32((bounds[b] - bounds[a]) * self.kinds)
            return (
                np.array_equal(self.text[nodes[0]], self.text[nodes[1]])
                and np.array_equal(degree[nodes[0]], degree[nodes[1]])
                and np.array_equal(rows.position[edges[0]], rows.position[edges[1]])
                and np.array_equal(rows.index[edges[0]] + shift, rows.index[edges[1]])
            )

        for one in range(1, self.graphs):
            if alike(one - 1, one):
                place[one] = place[one - 1]
        return place


@dataclass(frozen=True, eq=False)
class PackedGraphs:
    """Many graphs end to end, each with its edges sorted by target and by slot; node numbers are local."""

    flows: int
    text: NDArray[np.int32]
    node_start: NDArray[np.int64]  # (graphs + 1,)
    edge_start: NDArray[np.int64]  # (graphs + 1,)
    in_degree: NDArray[np.int32]  # per node
    in_slot: NDArray[np.int32]
    in_position: NDArray[np.int16]
    out_degree: NDArray[np.int32]  # per slot
    out_target: NDArray[np.int32]
    out_position: NDArray[np.int16]

    @property
    def kinds(self) -> int:
        """K, edge kinds with both directions counted."""
        return 2 * self.flows

    @property
    def graphs(self) -> int:
        """Number of graphs."""
        return len(self.node_start) - 1

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def sizes(self) -> NDArray[np.int64]:
        """Nodes of each graph."""
        return np.diff(self.node_start)

    def batch(
        self,
        graphs: NDArray[np.integer[Any]] | Sequence[int],
        roots: NDArray[np.integer[Any]] | Sequence[int],
        labels: Sequence[NDArray[Any]] | None = None,
    ) -> Batch:
        """These graphs side by side; one may occur several times, with another root.

        Args:
            graphs: which, by number.
            roots: the node asked about in each, counted within its graph.
            labels: one array per graph, or None.
        """
        chosen, root = np.asarray(graphs, np.int64), np.asarray(roots, np.int64)
        if len(chosen) == 0:
            raise InvalidSetting("A batch needs at least one graph")
        sizes = self.node_start[chosen + 1] - self.node_start[chosen]
        if root.shape != chosen.shape or np.any((root < 0) | (root >= sizes)):
            raise InvalidSetting("Each graph of a batch needs one root, which is one of its nodes")
        edges = self.edge_start[chosen + 1] - self.edge_start[chosen]
        first_node = _starts(sizes)
        kinds = self.kinds
        nodes = _spans(self.node_start[chosen], sizes)
        slots = _spans(self.node_start[chosen] * kinds, sizes * kinds)
        spans = _spans(self.edge_start[chosen], edges)
        shift = np.repeat(first_node[:-1].astype(np.int32), edges)
        incoming = Rows(
            _starts(self.in_degree[nodes]).astype(np.int32),
            self.in_slot[spans] + shift * np.int32(kinds),
            self.in_position[spans],
        )
        outgoing = Rows(
            _starts(self.out_degree[slots]).astype(np.int32),
            self.out_target[spans] + shift,
            self.out_position[spans],
        )
        joined = None if labels is None else np.concatenate(labels).astype(np.uint8)
        if joined is not None and len(joined) != len(nodes):
            raise InvalidSetting(f"{len(joined)} labels were given for {len(nodes)} nodes")
        return Batch(kinds, self.text[nodes], first_node, first_node[:-1] + root, incoming, outgoing, joined)


def pack(graphs: Iterable[GraphArrays], *, flows: int = FLOWS) -> PackedGraphs:
    """Pack graphs end to end and sort their edges. Edges of flows that models do not read are left out.

    Raises:
        InvalidGraph: a graph has no nodes, or an edge that points outside it.
    """
    parts = [_sorted(group, flows) for group in _groups(graphs)]
    if not parts:
        raise InvalidSetting("There are no graphs to pack")
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return PackedGraphs(flows, columns[0], _starts(columns[1]), _starts(columns[2]), *columns[3:])


@dataclass(frozen=True, eq=False)
class Examples:
    """Questions with their answers: a graph, the node asked about, and the label of every node."""

    packed: PackedGraphs
    graph: NDArray[np.int64]  # (I,) number in `packed`
    root: NDArray[np.int64]  # (I,)
    steps: NDArray[np.int64]  # (I,) steps that the exact analysis took
    labels: NDArray[np.uint8]  # labels of all examples, end to end
    source: NDArray[np.str_] | None = None  # (graphs,) the corpus that each graph of `packed` came from

    def __post_init__(self) -> None:
        if len(self.labels) != self.start[-1]:
            raise InvalidSetting(f"{len(self.labels)} labels were given for {self.start[-1]} nodes")

    def __len__(self) -> int:
        return len(self.graph)

    @cached_property
    def start(self) -> NDArray[np.int64]:
        """(I + 1,) where each example's labels begin."""
        return _starts(self.packed.sizes()[self.graph])

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        """These examples side by side."""
        spans = _spans(self.start[chosen], self.start[chosen + 1] - self.start[chosen])
        return self.packed.batch(self.graph[chosen], self.root[chosen], [self.labels[spans]])


@dataclass(frozen=True, eq=False)
class Batches:
    """Examples in batches of at most `node_budget` nodes."""

    examples: Examples
    node_budget: int
    seed: int = 0

    @cached_property
    def composition(self) -> list[NDArray[np.int64]]:
        """The examples of each batch, thrown together by the seed once: what is prepared can be kept."""
        order = np.random.default_rng(self.seed).permutation(len(self.examples))
        return list(plan(np.diff(self.examples.start), self.node_budget, order=order))

    def order(self, epoch: int) -> NDArray[np.int64]:
        """The batches of an epoch by number: the same for the same seed and epoch."""
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.composition))

    def __iter__(self) -> Iterator[Batch]:
        """All batches, the examples as they stand."""
        for chosen in plan(np.diff(self.examples.start), self.node_budget):
            yield self.examples.batch(chosen)


def unbatch(batch: Batch) -> list[Graph]:
    """The graphs of a batch, edges in order of slot: the inverse of batching, edge order apart."""
    flows = batch.kinds // 2
    slot, target = batch.outgoing.row.astype(np.int64), batch.outgoing.index.astype(np.int64)
    source, kind = slot // batch.kinds, slot % batch.kinds
    along = kind < flows  # those against it say the same again
    graphs = []
    for start, end in zip(batch.graph_start[:-1], batch.graph_start[1:], strict=True):
        mine = along & (source >= start) & (source < end)
        ends = np.stack([source[mine], target[mine]]) - start
        graphs.append(
            Graph(
                batch.text[start:end],
                ends.astype(np.int32),
                kind[mine].astype(np.uint8),
                batch.outgoing.position[mine].astype(np.int32),
            )
        )
    return graphs


def plan(
    sizes: NDArray[np.integer[Any]], node_budget: int, *, order: NDArray[np.integer[Any]] | None = None
) -> Iterator[NDArray[np.int64]]:
    """Cut a sequence of graphs into batches of at most `node_budget` nodes; a larger graph is alone.

    Args:
        sizes: nodes of each graph.
        node_budget: the most nodes of a batch.
        order: the sequence, as numbers into `sizes`; as they stand when None.
    """
    if node_budget < 1:
        raise InvalidSetting(f"node_budget must be at least 1, not {node_budget}")
    sequence = np.arange(len(sizes)) if order is None else np.asarray(order, np.int64)
    ends = np.cumsum(np.asarray(sizes, np.int64)[sequence])
    first = 0
    while first < len(sequence):
        used = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, used + node_budget, side="right")), first + 1)
        yield sequence[first:last]
        first = last


def _groups(graphs: Iterable[GraphArrays]) -> Iterator[list[GraphArrays]]:
    """Graphs in lists of a few hundred: enough to sort at once, few enough to stay small."""
    waiting = iter(graphs)
    while group := list(islice(waiting, 512)):
        yield group


def _sorted(group: Sequence[GraphArrays], flows: int) -> tuple[NDArray[Any], ...]:
    """Texts, nodes and edges per graph, then the six columns of sorted edges, of a few graphs."""
    kinds = 2 * flows
    for graph in group:
        n = len(graph.node_text_id)
        if n == 0:
            raise InvalidGraph("A graph without nodes cannot be packed; leave it out")
        if graph.edges.size and not (graph.edges.min() >= 0 and graph.edges.max() < n):
            raise InvalidGraph(f"An edge leads to a node that is not among its graph's {n}")
    sizes = np.array([len(graph.node_text_id) for graph in group], np.int64)
    first = _starts(sizes)
    flow = np.concatenate([graph.edge_flow for graph in group]).astype(np.int64)
    shift = np.repeat(first[:-1], [graph.edges.shape[1] for graph in group])
    ends = np.concatenate([graph.edges for graph in group], axis=1) + shift
    position = np.concatenate([graph.edge_position for graph in group])
    kept = flow < flows
    flow, ends = flow[kept], ends[:, kept]
    shift = np.concatenate([shift[kept], shift[kept]])
    source, target = np.concatenate([ends[0], ends[1]]), np.concatenate([ends[1], ends[0]])
    slot = source * kinds + np.concatenate([flow, flows + flow])
    short = np.clip(position[kept], 0, POSITIONS - 1).astype(np.int16)
    position = np.concatenate([short, short])
    by_target, by_slot = np.argsort(target, kind="stable"), np.argsort(slot, kind="stable")
    in_degree = np.bincount(target, minlength=first[-1])
    return (
        np.concatenate([graph.node_text_id for graph in group]).astype(np.int32),
        sizes,
        np.add.reduceat(in_degree, first[:-1]),
        in_degree.astype(np.int32),
        (slot - shift * kinds)[by_target].astype(np.int32),
        position[by_target],
        np.bincount(slot, minlength=first[-1] * kinds).astype(np.int32),
        (target - shift)[by_slot].astype(np.int32),
        position[by_slot],
    )


def _starts(sizes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def _spans(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers start, start + 1, … of each span, one span after the other."""
    before = _starts(lengths)
    return np.repeat(starts - before[:-1], lengths) + np.arange(before[-1])
