"""Packing graphs, batching them, and taking batches apart again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.batch import Batches, Examples, Graph, pack, plan, unbatch
from apportion.errors import InvalidGraph, InvalidSetting


def graph(nodes: int, edges: list[tuple[int, int, int, int]]) -> Graph:
    """A graph from (flow, position, source, target), edges in the order in which `unbatch` gives them."""
    rows = np.array(sorted(edges, key=lambda e: (e[2] * 6 + e[0], edges.index(e))), np.int32).reshape(-1, 4)
    return Graph(
        np.arange(nodes, dtype=np.int32), rows[:, 2:].T.copy(), rows[:, 0].astype(np.uint8), rows[:, 1].copy()
    )


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.integers(1, 9))
    node = st.integers(0, nodes - 1)
    edge = st.tuples(st.integers(0, 2), st.integers(0, 400), node, node)
    return graph(nodes, draw(st.lists(edge, max_size=20, unique=True)))


@given(st.data(), st.lists(graphs(), min_size=1, max_size=4))
def test_a_part_of_a_batch_is_the_batch_of_its_graphs(data: st.DataObject, made: list[Graph]) -> None:
    packed = pack(made)
    places = st.integers(0, len(made) - 1)
    chosen = data.draw(st.lists(places, min_size=1, max_size=6))
    roots = [data.draw(st.integers(0, len(made[number].node_text_id) - 1)) for number in chosen]
    labels = [np.arange(len(made[number].node_text_id)) % 2 for number in chosen]
    some = sorted(data.draw(st.sets(st.integers(0, len(chosen) - 1), min_size=1)))
    part = packed.batch(chosen, roots, labels).part(some)
    alone = packed.batch(*([all_[place] for place in some] for all_ in (chosen, roots, labels)))
    for name in ("text", "graph_start", "root", "labels"):
        np.testing.assert_array_equal(getattr(part, name), getattr(alone, name), err_msg=name)
    for one, two in ((part.incoming, alone.incoming), (part.outgoing, alone.outgoing)):
        for name in ("start", "index", "position"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


@given(st.data(), st.lists(graphs(), min_size=1, max_size=3))
def test_equal_graphs_side_by_side_are_found(data: st.DataObject, made: list[Graph]) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=6))
    batch = pack(made).batch(chosen, [0] * len(chosen))
    found = batch.first_alike().tolist()
    seen = unbatch(batch)
    for place, first in enumerate(found):
        same = place > 0 and seen[place] == seen[place - 1]
        assert first == (found[place - 1] if same else place)


@given(st.data(), st.lists(graphs(), min_size=1, max_size=5))
def test_batching_then_unbatching_is_the_identity(data: st.DataObject, made: list[Graph]) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=7))
    roots = [data.draw(st.integers(0, len(made[i].node_text_id) - 1)) for i in chosen]
    batch = pack(made).batch(chosen, roots)
    assert unbatch(batch) == [made[i] for i in chosen]
    assert (batch.root - batch.graph_start[:-1]).tolist() == roots


@given(st.lists(graphs(), min_size=1, max_size=5))
def test_both_orders_of_the_edges_hold_the_same_edges(made: list[Graph]) -> None:
    batch = pack(made).batch(np.arange(len(made)), np.zeros(len(made), int))
    incoming = np.stack([batch.incoming.index, batch.incoming.row, batch.incoming.position])
    outgoing = np.stack([batch.outgoing.row, batch.outgoing.index, batch.outgoing.position])
    assert sorted(incoming.T.tolist()) == sorted(outgoing.T.tolist())
    assert incoming.shape[1] == 2 * sum(one.edges.shape[1] for one in made)


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_a_plan_takes_each_graph_once_and_keeps_to_the_budget(sizes: list[int], budget: int) -> None:
    batches = [chosen.tolist() for chosen in plan(np.array(sizes, int), budget)]
    assert [i for chosen in batches for i in chosen] == list(range(len(sizes)))
    assert all(len(chosen) == 1 or sum(sizes[i] for i in chosen) <= budget for chosen in batches)


def test_a_message_is_looked_up_at_source_times_kinds_plus_kind() -> None:
    batch = pack([graph(3, [(1, 0, 0, 2)]), graph(2, [(2, 5, 1, 0)])]).batch([0, 1], [0, 0])
    # Along: source 0, data → 0 * 6 + 1; against: source 2 → 2 * 6 + 3 + 1. The second graph starts at 3.
    assert batch.incoming.index.tolist() == [16, 1, 4 * 6 + 2, 3 * 6 + 3 + 2]
    assert batch.incoming.row.tolist() == [0, 2, 3, 4]
    assert batch.incoming.position.tolist() == [0, 0, 5, 5]


def test_positions_beyond_the_table_share_its_last_row() -> None:
    batch = pack([graph(2, [(0, 9_999, 0, 1)])]).batch([0], [0])
    assert batch.incoming.position.tolist() == [4095, 4095]


def test_type_edges_are_left_out() -> None:
    batch = pack([graph(2, [(3, 0, 0, 1), (0, 0, 1, 0)])]).batch([0], [0])
    assert len(batch.incoming.index) == 2


def test_labels_are_joined_in_the_order_of_the_graphs() -> None:
    examples = Examples(
        pack([graph(2, []), graph(3, [])]),
        np.array([1, 0]), np.array([2, 0]), np.array([1, 1]), np.array([1, 0, 1, 0, 1], np.uint8),
    )  # fmt: skip
    labels = examples.batch(np.array([1, 0])).labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 1, 0, 1]


def test_batches_are_thrown_together_once_and_every_epoch_has_another_order() -> None:
    examples = Examples(
        pack([graph(2, [])]), np.zeros(50, int), np.zeros(50, int), np.ones(50, int), np.zeros(100, np.uint8)
    )
    one, two = Batches(examples, 10, seed=3), Batches(examples, 10, seed=3)
    taken = np.concatenate(one.composition).tolist()
    assert sorted(taken) == list(range(50))
    assert taken != sorted(taken)
    assert np.concatenate(two.composition).tolist() == taken
    assert sorted(one.order(0).tolist()) == list(range(10))
    assert one.order(0).tolist() == two.order(0).tolist() != one.order(1).tolist()


def test_a_graph_without_nodes_is_refused() -> None:
    with pytest.raises(InvalidGraph, match="without nodes"):
        pack([graph(0, [])])


def test_an_edge_out_of_its_graph_is_refused() -> None:
    with pytest.raises(InvalidGraph, match="not among its graph's 2"):
        pack([graph(2, [(0, 0, 0, 2)])])


def test_a_root_outside_its_graph_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="one root, which is one of its nodes"):
        pack([graph(2, [])]).batch([0], [2])


def test_missing_labels_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="1 labels were given for 2 nodes"):
        pack([graph(2, [])]).batch([0], [0], [np.zeros(1)])
