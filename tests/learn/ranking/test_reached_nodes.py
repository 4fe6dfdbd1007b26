"""Which nodes configurations reach, and which part of a graph is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.configurations import ConfiguredGraph
from apportion.data.published.tpugraphs import TensorGraph
from apportion.errors import InvalidSetting
from apportion.learn.ranking.reached_nodes import (
    ReachedNodes,
    SenderSums,
    configurable_of,
    logarithmic,
    select,
    within,
)
from apportion.testing.ranker_checks import layout_graph, tile_graph

CHAIN = np.array([[node + 1, node] for node in range(6)])  # 6 reads 5 reads … 0


def graph(edges: np.ndarray, nodes: int = 7, splits: tuple[int, ...] = (0, 7)) -> TensorGraph:
    return TensorGraph(
        np.ones(nodes, np.uint8), np.zeros((nodes, 140), np.float32), np.asarray(edges), np.array(splits)
    )


def dense(messages: SenderSums) -> np.ndarray:
    matrix = np.zeros((messages.receivers, messages.senders))
    np.add.at(matrix, (messages.receiver, messages.sender), messages.weight)
    return matrix


def test_each_layer_reaches_one_step_further_in_both_directions() -> None:
    reach = ReachedNodes.of(7, CHAIN, np.array([3]), layers=2)
    assert reach.reached == (1, 3, 5)
    assert reach.order.tolist() == [3, 2, 4, 1, 5, 0, 6]


def test_configurable_nodes_keep_the_order_of_their_codes() -> None:
    reach = ReachedNodes.of(7, CHAIN, np.array([5, 1]), layers=1)
    assert reach.order[:2].tolist() == [5, 1]
    assert reach.reached == (2, 6)


def test_without_configurable_nodes_nothing_is_reached() -> None:
    assert ReachedNodes.of(7, CHAIN, np.zeros(0, np.int64), layers=2).reached == (0, 0, 0)


def test_a_mean_over_both_directions_counts_the_node_itself() -> None:
    (messages,) = ReachedNodes.of(3, np.array([[1, 0], [2, 0]]), np.array([0]), layers=1).relations
    np.testing.assert_allclose(dense(messages), [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0], [0.5, 0, 0.5]])


def test_producers_and_consumers_can_have_a_mean_each() -> None:
    producers, consumers = ReachedNodes.of(
        3, np.array([[1, 0], [2, 0]]), np.array([0]), layers=1, relations="each"
    ).relations
    np.testing.assert_allclose(dense(producers), [[0, 0, 0], [1, 0, 0], [1, 0, 0]])
    np.testing.assert_allclose(dense(consumers), [[0, 0.5, 0.5], [0, 0, 0], [0, 0, 0]])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.floats(-2, 2, width=32)), max_size=30))
def test_blocks_transposes_and_stacks_are_those_of_the_matrix(terms: list[tuple[int, int, float]]) -> None:
    receiver, sender, weight = np.array(terms, np.float64).reshape(-1, 3).T
    messages = SenderSums.of(receiver.astype(int), sender.astype(int), weight, receivers=5, senders=7)
    matrix = dense(messages)
    np.testing.assert_allclose(dense(messages.block(3, 2, 6)), matrix[:3, 2:6])
    np.testing.assert_allclose(dense(messages.transposed()), matrix.T)
    np.testing.assert_allclose(dense(SenderSums.stacked([messages, messages])), np.hstack([matrix, matrix]))


def test_pruning_keeps_what_is_near_and_the_edges_between() -> None:
    chosen = select(graph(CHAIN), np.array([3]), hops=1)
    assert chosen.nodes.tolist() == [2, 3, 4]
    assert chosen.edges.tolist() == [[1, 0], [2, 1]]
    assert chosen.configurable.tolist() == [1]
    assert within(graph(CHAIN), np.array([3]), 2).tolist() == [False, True, True, True, True, True, False]


def test_dropping_edges_keeps_every_node() -> None:
    chosen = select(graph(CHAIN), np.array([3]), drop=0.5, random=np.random.default_rng(0))
    assert len(chosen.nodes) == 7
    assert 0 < len(chosen.edges) < 6


def test_a_dropped_segment_takes_its_configurable_nodes_along_but_one_always_stays() -> None:
    parts = graph(CHAIN, splits=(0, 3, 7))
    configurable = np.array([1, 5])
    seen = set()
    for seed in range(30):
        chosen = select(parts, configurable, drop=0.7, dropped="segments", random=np.random.default_rng(seed))
        assert len(chosen.columns) >= 1
        np.testing.assert_array_equal(chosen.nodes[chosen.configurable], configurable[chosen.columns])
        seen.add(tuple(chosen.nodes.tolist()))
    assert seen == {(0, 1, 2), (3, 4, 5, 6), (0, 1, 2, 3, 4, 5, 6)}


def test_dropping_needs_a_generator() -> None:
    with pytest.raises(InvalidSetting, match="needs a generator"):
        select(graph(CHAIN), np.array([3]), drop=0.5)


def test_tiles_have_no_configurable_nodes_and_layouts_name_each_once() -> None:
    assert len(configurable_of(tile_graph(0))) == 0
    stored = layout_graph(0)
    twice = ConfiguredGraph(
        "twice", "layout:xla:random", "train", {**stored.arrays, "node_config_ids": np.array([2, 2])}
    )
    with pytest.raises(InvalidSetting, match="twice: a configurable node is named twice"):
        configurable_of(twice)


def test_magnitudes_become_logarithms_and_signs_stay() -> None:
    np.testing.assert_allclose(logarithmic(np.array([0, 1, -1, np.e - 1])), [0, np.log(2), -np.log(2), 1])
