"""Batches in the buffers of CUDA graphs: what is left over changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from apportion.data.batch import Graph, pack  # noqa: E402
from apportion.learn.dataflow.programl import (  # noqa: E402
    NodeNetwork,
    ProgramlSettings,
    buffered_node_inputs,
    node_arrays,
    node_inputs,
)
from apportion.learn.nn.cuda_buffers import IGNORED, BufferPool, BufferSizes  # noqa: E402

CPU = torch.device("cpu")


def graph(seed: int, nodes: int) -> Graph:
    """A random graph with one node that most edges come from."""
    random = np.random.default_rng(seed)
    edges = random.integers(0, nodes, (2, 3 * nodes)).astype(np.int32)
    edges[0, nodes:] = 0
    return Graph(
        random.integers(0, 20, nodes).astype(np.int32),
        edges,
        random.integers(0, 3, 3 * nodes).astype(np.uint8),
        random.integers(0, 4, 3 * nodes).astype(np.int32),
    )


def batch_of(seed: int, *sizes: int):
    random = np.random.default_rng(seed)
    packed = pack([graph(seed + place, nodes) for place, nodes in enumerate(sizes)])
    labels = [random.integers(0, 2, nodes).astype(np.uint8) for nodes in sizes]
    return packed.batch(range(len(sizes)), [nodes // 2 for nodes in sizes], labels)


def gradients(network: NodeNetwork, scores, labels) -> list:
    network.zero_grad()
    F.cross_entropy(scores, labels).backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


def test_scores_and_gradients_in_buffers_are_those_outside() -> None:
    torch.manual_seed(0)
    network = NodeNetwork(20, 2, ProgramlSettings(width=6, steps=4, dilution=0.5))
    batch = batch_of(1, 60, 25)
    plain = node_inputs(batch, CPU, gradients=True)
    _, buffers = BufferPool(batch.kinds, CPU).fill(node_arrays(batch, gradients=True))
    buffered = buffered_node_inputs(buffers, batch.kinds)
    assert buffers.sizes.nodes > batch.nodes
    assert set(buffered.labels[batch.nodes :].tolist()) == {IGNORED}
    torch.testing.assert_close(buffered.labels[: batch.nodes].long(), plain.labels)
    with_rest = network(buffered)
    torch.testing.assert_close(with_rest[: batch.nodes], network(plain))
    expected = gradients(network, network(plain), plain.labels)
    for one, other in zip(gradients(network, with_rest, buffered.labels.long()), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_buffers_that_were_used_are_as_good_as_new() -> None:
    torch.manual_seed(0)
    network = NodeNetwork(20, 2, ProgramlSettings(width=6, steps=3))
    large, small = batch_of(1, 60, 25), batch_of(7, 50, 20)
    pool = BufferPool(large.kinds, CPU)
    first, _ = pool.fill(node_arrays(large, gradients=False))
    second, buffers = pool.fill(node_arrays(small, gradients=False))
    assert first == second
    scores = network(buffered_node_inputs(buffers, small.kinds))[: small.nodes]
    torch.testing.assert_close(scores, network(node_inputs(small, CPU, gradients=False)))


def test_a_batch_of_another_size_gets_other_buffers() -> None:
    pool = BufferPool(6, CPU)
    numbers = [
        pool.fill(node_arrays(batch, gradients=wanted))[0]
        for batch, wanted in (
            (batch_of(1, 600), True), (batch_of(2, 580), True), (batch_of(3, 100), True), (batch_of(4, 3000), True),
            (batch_of(1, 600), False), (batch_of(5, 110), True),
        )
    ]  # fmt: skip
    assert numbers == [0, 0, 1, 2, 3, 1]


def test_buffers_hold_what_fits_without_much_left_over() -> None:
    buffers = BufferSizes(100, 400, 8, 8, 20)
    assert buffers.holds(BufferSizes(90, 350, 8, 0, 3))
    assert not buffers.holds(BufferSizes(101, 350, 8, 0, 3))
    assert not buffers.holds(BufferSizes(90, 350, 9, 0, 3))
    assert not BufferSizes(1000, 4000, 8, 8, 20).holds(BufferSizes(200, 800, 0, 0, 3))
    assert not buffers.holds(BufferSizes(90, 350, 8, 0, 0))
