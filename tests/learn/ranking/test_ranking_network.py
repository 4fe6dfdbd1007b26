"""The ranking network against the plain way, which computes every node for every configuration."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from apportion.data.configurations import ConfiguredGraph  # noqa: E402
from apportion.errors import InvalidSetting  # noqa: E402
from apportion.learn.nn.losses import list_mle  # noqa: E402
from apportion.learn.ranking.ranking_inputs import inputs_of, whole_graph  # noqa: E402
from apportion.learn.ranking.ranking_learner import LearnerSettings  # noqa: E402
from apportion.learn.ranking.ranking_network import RankingNetwork  # noqa: E402
from apportion.learn.ranking.ranking_settings import RankingSettings  # noqa: E402
from apportion.learn.ranking.reached_nodes import Selection, configurable_of, logarithmic, select  # noqa: E402
from apportion.testing.ranker_checks import layout_graph, tile_graph  # noqa: E402

CPU = torch.device("cpu")
VARIANTS = [
    {},
    {"residual": "add"},
    {"layers": 3, "convolution": "sage"},
    {"norm": "graph", "convolution": "sage", "residual": "add"},
    {"norm": "instance"},
    {"attention": "nodes"},
    {"attention": "nodes", "norm": "instance", "convolution": "sage", "layers": 3},
    {"cross_configuration": True, "convolution": "sage"},
    {"layout_embedding": True, "hops": 1},
    {"layers": 1, "norm": "graph"},
]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark, which keeps the plain way."""
    path = Path(__file__).parents[3] / "benchmarks" / "ranking.py"
    spec = importlib.util.spec_from_file_location("ranking_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def naive(network: RankingNetwork, stored: ConfiguredGraph, chosen: Selection) -> Any:
    """(C,) by matrices of all nodes, each configuration beside the others: nothing is shared, nothing sorted."""
    s, nodes = network.settings, len(chosen.nodes)
    features = torch.from_numpy(logarithmic(stored.arrays["node_feat"][chosen.nodes])).double()
    opcode = torch.from_numpy(stored.arrays["node_opcode"][chosen.nodes].astype(np.int64))
    base = network.enter(
        torch.cat([(features - network.mean) / network.deviation, network.opcode(opcode)], 1)
    )
    options = torch.from_numpy(stored.features(stored.codes)).double()[:, chosen.columns]  # (C, M, 18)
    count = len(options)
    added = torch.zeros(count, nodes, s.width, dtype=torch.float64)
    added[:, chosen.configurable] = network._option(options.reshape(-1, 18)).view(count, -1, s.width)
    consumer, producer = chosen.edges.T
    reads = torch.zeros(nodes, nodes, dtype=torch.float64)
    reads[consumer, producer] = 1
    mean = lambda a: a / a.sum(1, keepdim=True).clamp(min=1)  # noqa: E731
    both = torch.zeros(nodes, nodes, dtype=torch.float64)
    np.add.at(both.numpy(), (consumer, producer), 1)
    np.add.at(both.numpy(), (producer, consumer), 1)
    both = mean(both + torch.eye(nodes, dtype=torch.float64))

    def run(first: Any, attends: bool) -> list[Any]:
        parts, moments = [F.leaky_relu(first, 0.2)], []
        for number, layer in enumerate(network.layers):
            state = torch.cat(parts, -1) if s.residual == "append" else sum(parts)
            m = F.leaky_relu(layer.node(state), 0.2)
            if layer.attention is not None:
                key = layer.attention.key(m)
                weight = torch.softmax(key @ key.transpose(1, 2) / s.width**0.5, -1)
                m = m + weight @ layer.attention.value(m)
            if s.convolution == "sage":
                a = (
                    layer.itself(m)
                    + mean(reads) @ (m @ layer.neighbours[0])
                    + mean(reads.T) @ (m @ layer.neighbours[1])
                )
            else:
                a = both @ m
            if s.norm != "none":
                centre, spread = a.mean(1, keepdim=True), (a.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
                moments.append((centre, spread))
                if s.norm == "graph" and attends:
                    centre, spread = without[number]
                a = (a - centre) / spread
            a = F.leaky_relu(a, 0.2)
            if layer.temperature is not None and attends:
                a = a * count * torch.softmax(a * layer.temperature, 0)
            parts.append(a)
        return parts if attends else moments

    without = run(base[None], False) if s.norm == "graph" else []
    parts = [part.mean(1) for part in run(base + added, True)]
    pooled = torch.cat(parts, -1) if s.residual == "append" else sum(parts)
    return network.score(F.leaky_relu(network.head(pooled), 0.2))[:, 0]


def doubled(inputs: Any) -> Any:
    """The same inputs in 64-bit numbers, so that only a wrong formula can differ."""

    def sums(one: Any) -> Any:
        return type(one)((*one.forth[:2], one.forth[2].double()), (*one.back[:2], one.back[2].double()))

    layers = tuple(
        type(layer)(layer.senders, layer.receivers, sums(layer.moving), sums(layer.onto), sums(layer.whole))
        for layer in inputs.layers
    )
    return type(inputs)(
        inputs.opcode, inputs.features.double(), inputs.options.double(), inputs.option_node,
        inputs.option_first, inputs.columns, layers,
    )  # fmt: skip


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_scores_and_gradients_are_those_of_the_plain_way(settings: dict[str, Any]) -> None:
    stored = layout_graph(5, nodes=30, configurations=9)
    chosen = RankingSettings(width=6, opcode_width=3, **settings)
    torch.manual_seed(0)
    network = RankingNetwork(chosen).double()
    part = select(stored.graph, configurable_of(stored), hops=chosen.hops)
    inputs = doubled(inputs_of(stored, part, chosen, CPU))
    runtime = torch.from_numpy(stored.truth)
    found = []
    for scores in (network(inputs, inputs.rows_of(stored.codes)), naive(network, stored, part)):
        loss = list_mle(scores[:, None], runtime)
        found.append((scores, torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)))
    (ours, our_gradients), (plain, gradients) = found
    assert float(plain.detach().std()) > 1e-6  # configurations do make a difference
    # Shares of neighbours are 32-bit numbers here, and exact there.
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-6)
    for one, other in zip(our_gradients, gradients, strict=True):
        if other is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", ["mean", "sage"])
def test_in_32_bits_a_large_graph_differs_by_less_than_one_in_ten_thousand(
    benchmark: ModuleType, model: str
) -> None:
    stored = benchmark.synthetic_graph(1500, 30, 8, seed=3)
    settings = benchmark.MODELS[model]
    torch.manual_seed(0)
    network = RankingNetwork(settings)
    benchmark.fit_scaling(network, stored)
    inputs = inputs_of(stored, whole_graph(stored), settings, CPU)
    assert inputs.layers[-1].receivers < 700  # most nodes are never reached
    rows = inputs.rows_of(stored.codes)
    apart = benchmark.compare(network, inputs, rows, torch.from_numpy(stored.truth))
    assert apart["scores_apart"] < 1e-4
    assert apart["gradients_apart"] < 1e-3


def test_scores_follow_their_configurations_and_nothing_else() -> None:
    stored = layout_graph(2)
    settings = RankingSettings(width=8)
    torch.manual_seed(0)
    network = RankingNetwork(settings)
    inputs = inputs_of(stored, whole_graph(stored), settings, CPU)
    rows = inputs.rows_of(stored.codes)
    order = torch.randperm(len(rows))
    whole = network(inputs, rows)
    torch.testing.assert_close(network(inputs, rows[order]), whole[order])
    torch.testing.assert_close(network(inputs, rows[:1]), whole[:1])


def test_renumbering_the_nodes_changes_no_score() -> None:
    stored = layout_graph(4)
    nodes = stored.graph.nodes
    order = np.random.default_rng(0).permutation(nodes)
    place = np.argsort(order)
    arrays = stored.arrays
    other = ConfiguredGraph(
        "renumbered", stored.collection, stored.side,
        {**arrays, "node_opcode": arrays["node_opcode"][order], "node_feat": arrays["node_feat"][order],
         "edge_index": place[arrays["edge_index"]], "node_config_ids": place[arrays["node_config_ids"]]},
    )  # fmt: skip
    settings = RankingSettings(width=8, convolution="sage", norm="graph")
    torch.manual_seed(0)
    network = RankingNetwork(settings)
    scores = []
    for graph in (stored, other):
        inputs = inputs_of(graph, whole_graph(graph), settings, CPU)
        scores.append(network(inputs, inputs.rows_of(graph.codes)))
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-4, atol=1e-5)


def test_a_tile_is_joined_to_a_graph_that_is_computed_once() -> None:
    stored = tile_graph(1)
    settings = RankingSettings(width=8, configurations="tile")
    torch.manual_seed(0)
    network = RankingNetwork(settings)
    inputs = inputs_of(stored, whole_graph(stored), settings, CPU)
    assert [layer.receivers for layer in inputs.layers] == [0, 0]
    scores = network(inputs, inputs.rows_of(stored.codes))
    assert scores.shape == (stored.configurations,)
    assert float(scores.detach().std()) > 0


def test_a_graph_of_the_other_kind_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="tile-1 is of tile:xla, but the network reads layouts"):
        inputs_of(tile_graph(1), whole_graph(tile_graph(1)), RankingSettings(), CPU)
    settings = RankingSettings(configurations="tile")
    with pytest.raises(InvalidSetting, match="set configurations = 'layout'"):
        inputs_of(layout_graph(1), whole_graph(layout_graph(1)), settings, CPU)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"width": 0}, "width must be at least 1, not 0"), ({"hops": -1}, "hops must not be negative, not -1")],
)
def test_impossible_networks_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        RankingSettings(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampled": 1}, "sampled must be at least 2 configurations, not 1"),
        ({"dropout": 1.0}, "dropout must lie from 0 to below 1, not 1.0"),
        ({"graphs": 0}, "graphs and together must be at least 1"),
        ({"l2": -1.0}, "l2 and validated must not be negative"),
    ],
)
def test_impossible_steps_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        LearnerSettings(**settings)
