"""Networks of kernels side by side, on shared states, against one network on one graph, node by node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from apportion.data.batch import Graph
from apportion.data.folds import Fold
from apportion.errors import InvalidSetting
from apportion.learn.nn.gathering import CHUNK, SumPlan
from apportion.learn.nn.layers import sinusoids
from apportion.learn.shares.colours import Colouring, GraphSet
from apportion.learn.shares.kernel_network import KernelNetwork, RowInputs
from apportion.learn.shares.network_settings import Fitting, KernelNetworkSettings, KernelRows
from apportion.learn.shares.stacks import Workshop, fit, losses_of, network_for

ROWS = {
    "base": KernelNetworkSettings(pooling="gated-sum", readout="plain"),
    "mlp": KernelNetworkSettings("none", "mean", "plain"),
    "gcn": KernelNetworkSettings("convolution", "mean", "plain"),
    "gat": KernelNetworkSettings("attention", "mean", "plain"),
    "mean": KernelNetworkSettings("messages", "mean", "plain"),
    "clusters": KernelNetworkSettings("messages", "clusters", "plain"),
    "learned-clusters": KernelNetworkSettings("messages", "learned-clusters", "plain"),
    "top-k": KernelNetworkSettings("messages", "top-k", "plain"),
    "skips": KernelNetworkSettings("messages", "skips", "extended"),
    "both ways": KernelNetworkSettings("messages", "skips", "extended", both_ways=True),
}
SHARINGS = ("colours", "last colours", "nodes")


def program(seed: int, nodes: int = 40, texts: int = 5) -> Graph:
    """A random graph: a chain with jumps, operands at positions, some calls, and a loop at one node."""
    random = np.random.default_rng(seed)
    chain = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    rest = random.integers(0, nodes, (2, 2 * nodes))
    edges = np.concatenate([chain, rest, [[3], [3]]], axis=1).astype(np.int32)
    flow = np.concatenate([np.zeros(nodes - 1), random.integers(0, 3, 2 * nodes), [0]]).astype(np.uint8)
    position = np.where(flow == 1, random.integers(0, 4, len(flow)), 0).astype(np.int32)
    return Graph(random.integers(0, texts, nodes).astype(np.int32), edges, flow, position)


def doubled(graph: Graph) -> Graph:
    """Two copies in one graph: every node has a twin that nothing tells apart."""
    n = len(graph.node_text_id)
    return Graph(
        np.tile(graph.node_text_id, 2), np.concatenate([graph.edges, graph.edges + n], axis=1),
        np.tile(graph.edge_flow, 2), np.tile(graph.edge_position, 2),
    )  # fmt: skip


GRAPHS = [program(1), program(2, 25), doubled(program(3, 21)), program(1)]


def kernel_rows(classes: int = 0, count: int = 12) -> KernelRows:
    random = np.random.default_rng(0)
    labels = random.integers(0, classes, count) if classes else random.uniform(0, 100, count).round()
    return KernelRows(
        GraphSet.of(GRAPHS), np.arange(count) % len(GRAPHS),
        random.normal(size=(count, 2)).astype(np.float32), labels.astype(np.float32), classes,
    )  # fmt: skip


def weights_of(network: KernelNetwork, model: int) -> dict[str, Tensor]:
    return {name: value[model] for name, value in network.state_dict(keep_vars=True).items()}


def aggregated(values: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return torch.zeros_like(values[:1]).expand(len(values), -1).index_add(0, target, values[source])


def pooled_plainly(settings: KernelNetworkSettings, w: dict[str, Tensor], graph: Graph) -> Tensor:
    """One network, one graph, every node on its own."""
    text = torch.from_numpy(graph.node_text_id).long()
    source, target = (torch.from_numpy(ends).long() for ends in graph.edges)
    flow, position = torch.from_numpy(graph.edge_flow).long(), torch.from_numpy(graph.edge_position).long()
    if settings.both_ways:
        source, target = torch.cat([source, target]), torch.cat([target, source])
        flow, position = torch.cat([flow, flow + 3]), position.repeat(2)
    n, h = len(text), settings.hidden
    first = state = w["embedding"][text]
    if settings.layers == "none":
        return first.mean(0)
    proper = source != target
    own = torch.arange(n)
    loops = torch.cat([source[proper], own]), torch.cat([target[proper], own])
    states = []
    for step in range(settings.steps):
        p = f"layers.{step % 2}."
        if settings.layers == "messages":
            sent = (state @ w[p + "message.weight"] + w[p + "message.bias"]).view(n, settings.flows, h)[
                source, flow
            ]
            gate = 2 * torch.sigmoid(sinusoids(8, h) @ w[p + "gate.weight"] + w[p + "gate.bias"])
            mean = torch.zeros(n, h).index_add(0, target, sent * gate[position])
            mean = mean / torch.bincount(target, minlength=n).clamp(min=1).unsqueeze(1)
            state = torch.gru_cell(
                mean, state, w[p + "update.input_weight"].t(), w[p + "update.hidden_weight"].t(),
                w[p + "update.input_bias"][0], w[p + "update.hidden_bias"][0],
            )  # fmt: skip
        elif settings.layers == "convolution":
            scale = torch.bincount(loops[1], minlength=n).float().rsqrt().unsqueeze(1)
            mapped = state @ w[p + "map.weight"] * scale
            state = aggregated(mapped, *loops) * scale + w[p + "map.bias"]
        else:
            mapped = state @ w[p + "map"]
            score = (mapped @ w[p + "source"])[loops[0]] + (mapped @ w[p + "target"])[loops[1]]
            weight = F.leaky_relu(score, 0.2).exp()
            total = torch.zeros(n, 1).index_add(0, loops[1], weight)
            state = torch.zeros(n, h).index_add(0, loops[1], mapped[loops[0]] * weight / total[loops[1]])
            state = state + w[p + "bias"]
        states.append(state)
    if settings.pooling == "skips":
        return torch.cat([one.mean(0) for one in states])
    if settings.pooling == "mean":
        both = [first.mean(0), state.mean(0)]
        return torch.cat(both if settings.layers == "messages" else both[::-1])
    if settings.pooling == "gated-sum":
        gate = torch.cat([first, state], 1) @ w["pooling.gate.weight"] + w["pooling.gate.bias"]
        mapped = state @ w["pooling.transform.weight"] + w["pooling.transform.bias"]
        return (torch.sigmoid(gate) * mapped).sum(0)
    if settings.pooling == "clusters":
        adjacent = torch.zeros(n, n).index_put((source, target), torch.ones(len(source)), accumulate=True)
        one = F.relu(adjacent @ state @ w["pooling.first.weight"] + w["pooling.first.bias"])
        embedded = adjacent @ one @ w["pooling.second.weight"] + w["pooling.second.bias"]
        # Any assignment will do: this one comes from the same states by weights of no meaning.
        assigned = torch.softmax(
            F.relu(adjacent @ state @ torch.linspace(-1, 1, h * 512).view(h, 512)), dim=1
        )
        return (assigned.t() @ embedded).mean(0)
    if settings.pooling == "learned-clusters":
        adjacent = torch.zeros(n, n).index_put((source, target), torch.ones(len(source)), accumulate=True)

        def mapped_by(name: str, values: Tensor) -> Tensor:
            return values @ w[f"pooling.{name}.weight"] + w[f"pooling.{name}.bias"]

        embedded = mapped_by("second", adjacent @ F.relu(mapped_by("first", adjacent @ state)))
        said = mapped_by("second_assigned", adjacent @ F.relu(mapped_by("first_assigned", adjacent @ state)))
        clusters = torch.softmax(said, dim=1).t() @ embedded / n
        return F.relu(mapped_by("behind", clusters.reshape(1, -1)))[0]
    kept = own
    edges = torch.stack([source[proper], target[proper]])
    for _ in range(3):
        place = torch.full((n,), -1)
        place[kept] = torch.arange(len(kept))
        left = place[edges]
        left = left[:, (left >= 0).all(0)]
        there = torch.arange(len(kept))
        left = torch.cat([left, torch.stack([there, there])], 1)
        scale = torch.bincount(left[1], minlength=len(kept)).float().rsqrt().unsqueeze(1)
        mapped = state @ w["pooling.map.weight"] * scale
        state = F.relu(aggregated(mapped, *left) * scale + w["pooling.map.bias"])
        score = (state @ w["pooling.score"]).squeeze(1) / w["pooling.score"].norm()
        best = torch.argsort(score, descending=True, stable=True)[: int(np.ceil(0.8 * len(kept)))]
        state, kept = state[best] * torch.tanh(score[best]).unsqueeze(1), kept[best]
    return state.mean(0)


def plain_inputs(
    workshop: Workshop, rows: KernelRows, settings: KernelNetworkSettings, sharing: str, models: int
):
    every = np.arange(len(rows.graph))
    place, plans = workshop.plans(every, settings, sharing, models)  # type: ignore[arg-type]
    index = torch.from_numpy(place + plans.graphs * np.arange(models)[:, None])
    inputs = torch.from_numpy(rows.inputs).expand(models, -1, -1)
    return plans, RowInputs(index, inputs, torch.ones(models, len(every), 1))


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("name", ROWS)
def test_shared_and_stacked_states_pool_to_what_one_network_on_one_graph_does(
    name: str, sharing: str
) -> None:
    settings, rows = ROWS[name], kernel_rows()
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    network = network_for(workshop, rows, settings, [5, 6, 7]).eval()
    plans, _ = plain_inputs(workshop, rows, settings, sharing, 3)
    with torch.inference_mode():
        pooled = network.pooled(plans)
    twins = name == "top-k"  # of twins at the edge of the kept ones, one by one keeps one and drops the other
    for model in range(3):
        for number, graph in enumerate(GRAPHS):
            if twins and number == 2:
                continue
            plain = pooled_plainly(settings, weights_of(network, model), graph).detach()
            torch.testing.assert_close(pooled[model, number], plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ROWS)
def test_gradients_are_those_of_one_network_on_one_graph(name: str) -> None:
    settings, rows = ROWS[name], kernel_rows()
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    network = network_for(workshop, rows, settings, [5, 6])
    plans, _ = plain_inputs(workshop, rows, settings, "colours", 2)
    usable = [0, 1, 3]
    network.eval().pooled(plans)[1, usable].square().sum().backward()
    shared = {
        key: value.grad[1].clone() for key, value in network.named_parameters() if value.grad is not None
    }
    assert all(value.grad[0].abs().max() == 0 for value in network.parameters() if value.grad is not None)
    network.zero_grad()
    plain = [pooled_plainly(settings, weights_of(network, 1), GRAPHS[number]) for number in usable]
    torch.stack(plain).square().sum().backward()
    compared = 0
    for key, value in network.named_parameters():
        if value.grad is not None:
            scale = float(value.grad[1].abs().max()) or 1.0
            torch.testing.assert_close(shared[key] / scale, value.grad[1] / scale, atol=2e-5, rtol=1e-4)
            compared += 1
    assert compared >= 1


def test_twins_that_compete_for_the_last_place_share_it() -> None:
    settings, rows = ROWS["top-k"], kernel_rows()
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    network = network_for(workshop, rows, settings, [5]).eval()
    with torch.inference_mode():
        by_colour = network.pooled(plain_inputs(workshop, rows, settings, "colours", 1)[0])
        again = network.pooled(plain_inputs(workshop, rows, settings, "last colours", 1)[0])
    torch.testing.assert_close(by_colour, again, atol=1e-5, rtol=1e-5)


def test_equal_graphs_and_twins_have_equal_colours_and_others_do_not() -> None:
    graphs = GraphSet.of(GRAPHS)
    levels = Colouring.of(graphs, 6).levels
    counts = [len(np.unique(level)) for level in levels]
    assert counts[0] == 5
    assert counts == sorted(counts)
    first, last = (levels[-1][graphs.start[g] : graphs.start[g + 1]] for g in (0, 3))
    assert np.array_equal(first, last)
    twins = levels[-1][graphs.start[2] : graphs.start[3]]
    assert np.array_equal(twins[:21], twins[21:])
    assert len(np.unique(levels[-1])) <= 40 + 25 + 21


def test_a_long_row_is_summed_in_chunks() -> None:
    random = np.random.default_rng(0)
    row = np.concatenate([np.zeros(CHUNK * CHUNK + 5), [1, 3]]).astype(np.int64)
    index, weight = random.integers(0, 9, len(row)), random.normal(size=len(row))
    plan = SumPlan.of(row, index, weight, rows=4, table=9, models=2, device=torch.device("cpu"))
    assert len(plan.forward) == 3
    table = torch.randn(2, 9, 3, requires_grad=True)
    dense = torch.zeros(4, 9)
    dense.index_put_(
        (torch.from_numpy(row), torch.from_numpy(index)), torch.from_numpy(weight).float(), accumulate=True
    )
    torch.testing.assert_close(plan(table), dense @ table, atol=1e-4, rtol=1e-4)
    plan(table).square().sum().backward()
    shared, table.grad = table.grad, None
    (dense @ table).square().sum().backward()
    torch.testing.assert_close(shared, table.grad, atol=1e-2, rtol=1e-4)


def test_rows_that_fill_up_count_for_nothing() -> None:
    scores, labels = torch.tensor([[[1.0], [5.0]]]), torch.tensor([[3.0, 0.0]])
    assert losses_of(scores, labels, torch.tensor([[1.0, 0.0]])).item() == 4.0
    network = network_for(
        Workshop(kernel_rows().graphs, kernel_rows().graph, "cpu"), kernel_rows(), ROWS["mlp"], [1]
    )
    rows = torch.randn(1, 6, 66)
    alone = torch.nn.BatchNorm1d(66)
    counts = torch.tensor([1.0, 1, 1, 1, 0, 0]).view(1, 6, 1)
    torch.testing.assert_close(network.norm(rows, counts)[0, :4], alone(rows[0, :4]))
    torch.testing.assert_close(network.norm.variance[0, 0], alone.running_var)


@pytest.mark.parametrize(
    ("name", "classes"), [("base", 0), ("gat", 3), ("top-k", 0), ("clusters", 3), ("learned-clusters", 0)]
)
def test_a_stack_learns_its_rows_by_heart(name: str, classes: int) -> None:
    rows = kernel_rows(classes)
    every = np.arange(12)
    folds = [
        Fold(str(i), np.delete(every, [i, i + 1]), every[i : i + 1], every[i + 1 : i + 2]) for i in range(2)
    ]
    settings = KernelNetworkSettings(
        ROWS[name].layers, ROWS[name].pooling, "plain", hidden=16, steps=2, dropout=0.0, pooling_dropout=0.0
    )
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    fitting = Fitting(epochs=30, batch=5, learning_rate=2e-2, validate_every=10, prepared=4)
    fitted = fit(workshop, rows, folds, settings, fitting, seed=1)
    assert fitted.scores.shape == (3, 2, 12, max(classes, 1))
    assert fitted.epochs.tolist() == [10, 20, 30]
    assert fitted.steps == 60
    assert (fitted.losses[-1] < 0.5 * fitted.losses[0]).all() or (fitted.losses[-1] < 0.05).all()


def test_the_assignment_of_learned_clusters_has_a_gradient_and_that_of_the_published_form_has_none() -> None:
    rows = kernel_rows()
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    network = network_for(workshop, rows, ROWS["learned-clusters"], [5])
    network.pooled(
        plain_inputs(workshop, rows, ROWS["learned-clusters"], "colours", 1)[0]
    ).square().sum().backward()
    gradients = {name: value.grad for name, value in network.named_parameters() if "assigned" in name}
    assert len(gradients) == 4
    assert all(gradient is not None and gradient.abs().max() > 1e-6 for gradient in gradients.values())
    published = network_for(workshop, rows, ROWS["clusters"], [5])
    assert not any("assigned" in name for name, _ in published.named_parameters())


def test_the_readout_takes_as_many_numbers_as_rows_have() -> None:
    told = kernel_rows()
    more = np.hstack([told.inputs, np.arange(36, dtype=np.float32).reshape(12, 3)])
    rows = KernelRows(told.graphs, told.graph, more, told.labels)
    every = np.arange(12)
    settings = KernelNetworkSettings("none", "mean", "plain", hidden=8)
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    assert network_for(workshop, rows, settings, [1]).norm.weight.shape == (1, 1, 8 + 5)
    fitting = Fitting(epochs=2, batch=6, validate_every=2)
    fitted = fit(workshop, rows, [Fold("0", every[:8], every[8:10], every[10:])], settings, fitting, seed=1)
    assert np.isfinite(fitted.scores).all()


def test_a_stack_is_the_models_made_one_by_one() -> None:
    rows = kernel_rows()
    every = np.arange(12)
    folds = [
        Fold(str(i), np.delete(every, [i, i + 1]), every[i : i + 1], every[i + 1 : i + 2]) for i in range(2)
    ]
    settings = KernelNetworkSettings(hidden=8, steps=2, dropout=0.0)
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    fitting = Fitting(epochs=4, batch=5, validate_every=4)
    together = fit(workshop, rows, folds, settings, fitting, seed=1)
    alone = fit(workshop, rows, folds[:1], settings, fitting, seed=1)
    np.testing.assert_allclose(together.scores[:, :1], alone.scores, atol=1e-4)


def test_poolings_of_states_need_messages() -> None:
    with pytest.raises(InvalidSetting, match="goes with the layers 'messages' alone"):
        KernelNetworkSettings("attention", "top-k", "plain")
    with pytest.raises(InvalidSetting, match="both_ways goes with the layers 'messages' alone"):
        KernelNetworkSettings("none", "mean", both_ways=True)
