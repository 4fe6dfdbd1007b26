"""Time the forward pass, the backward pass and a training step of the data-flow network against its peers.

Peers, all with the same weights on the same batch:
    original    messages looked up per edge kind and added per kind (the original implementation)
    initial     looked up per edge kind, joined, and aggregated by PyTorch Geometric (the initial port)
    improved    one look-up (thesis, Eq. 4.1), aggregated by PyTorch Geometric (the thesis' improved layer)
    shipped     ours: edges sorted once, one fused pass per step, the gradient written out
On a GPU `shipped` replays a CUDA graph on buffers that the batch was copied into; `launched` does not.

Graphs are drawn with the shape of DeepDataFlow's (581 nodes on average, 1.7 edges per node), seeded, so that
the benchmark needs no data. Every peer's scores and gradients are compared with ours before it is timed.

    python benchmarks/forward.py --device cuda --out forward.json

Last comes the memory of a training run over more graphs, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import MessagePassing

from apportion.data.batch import Batch, Batches, Examples, Graph, pack
from apportion.learn import tasks
from apportion.learn.dataflow.programl import (
    NodeInputs,
    NodeNetwork,
    Programl,
    ProgramlSettings,
    buffered_node_inputs,
    node_arrays,
    node_inputs,
)
from apportion.learn.model import Optimisation
from apportion.learn.nn.cuda_buffers import BufferPool
from apportion.learn.nn.cuda_graphs import GraphRecorder
from apportion.learn.nn.layers import GatedMessages, operations_for
from apportion.learn.nn.propagation import TorchOperations
from apportion.testing.model_checks import Silence

TOLERANCE = 1e-5


class Original(nn.Module):
    """The original's messages: a look-up and an addition for each kind of edge."""

    def __init__(self, layer: GatedMessages, batch: Batch, device: torch.device) -> None:
        super().__init__()
        self.layer = layer
        source, target, kind, position = _edge_list(batch, device)
        self.per_kind = [
            (source[kind == k], target[kind == k], position[kind == k]) for k in range(layer.kinds)
        ]
        self.divisor = torch.bincount(target, minlength=batch.nodes).clamp(min=1).unsqueeze(1).float()

    def forward(self, state: Tensor, steps: int) -> Tensor:
        layer = self.layer
        for _ in range(steps):
            gates = layer.gates()
            propagated = layer.message(state).transpose(0, 1).reshape(layer.kinds, layer.hidden, -1)
            received = torch.zeros_like(state)
            for k, (source, target, position) in enumerate(self.per_kind):
                messages = F.embedding(source, propagated[k].transpose(0, 1)) * F.embedding(position, gates)
                received = received.index_add(0, target, messages)
            state = layer.update(received / self.divisor, state)
        return state


class Initial(MessagePassing):
    """The initial port: a look-up per kind of edge, then PyTorch Geometric's mean."""

    def __init__(self, layer: GatedMessages, batch: Batch, device: torch.device) -> None:
        super().__init__(aggr="mean")
        self.layer, self.nodes = layer, batch.nodes
        source, target, kind, position = _edge_list(batch, device)
        order = torch.argsort(kind, stable=True)
        self.sources = [source[kind == k] for k in range(layer.kinds)]
        self.edge_index, self.position = torch.stack([source[order], target[order]]), position[order]

    def forward(self, state: Tensor, steps: int) -> Tensor:
        layer = self.layer
        for _ in range(steps):
            propagated = layer.message(state).transpose(0, 1).reshape(layer.kinds, layer.hidden, -1)
            looked_up = torch.cat(
                [F.embedding(source, propagated[k].transpose(0, 1)) for k, source in enumerate(self.sources)]
            )
            gate = F.embedding(self.position, layer.gates())
            received = self.propagate(
                self.edge_index, looked_up=looked_up, gate=gate, size=(self.nodes, self.nodes)
            )
            state = layer.update(received, state)
        return state

    def message(self, looked_up: Tensor, gate: Tensor) -> Tensor:
        return looked_up * gate


class Improved(Initial):
    """The thesis' improved layer: one look-up with scaled sources, then PyTorch Geometric's mean."""

    def __init__(self, layer: GatedMessages, batch: Batch, device: torch.device) -> None:
        super().__init__(layer, batch, device)
        source, target, kind, position = _edge_list(batch, device)
        self.edge_index, self.position = torch.stack([source, target]), position
        self.scaled_sources = source * layer.kinds + kind

    def forward(self, state: Tensor, steps: int) -> Tensor:
        layer = self.layer
        for _ in range(steps):
            messages = layer.message(state).view(-1, layer.hidden)
            looked_up = F.embedding(self.scaled_sources, messages)
            gate = F.embedding(self.position, layer.gates())
            received = self.propagate(
                self.edge_index, looked_up=looked_up, gate=gate, size=(self.nodes, self.nodes)
            )
            state = layer.update(received, state)
        return state


PEERS: dict[str, type[Original] | type[Initial]] = {
    "original": Original, "initial": Initial, "improved": Improved
}  # fmt: skip


def program_like(seed: int, nodes: int) -> Graph:
    """A graph with the degrees, flows and positions of a program's: chains of control, operands, calls."""
    random = np.random.default_rng(seed)
    instructions = max(2, nodes * 45 // 100)
    others = np.arange(instructions, nodes)
    chain = np.stack([np.arange(instructions - 1), np.arange(1, instructions)])
    defined = np.stack([random.integers(0, instructions, len(others)), others])
    uses = 2 * len(others) * 55 // 100
    # A tenth of the operands are a few constants that many instructions share.
    shared = random.random(uses) < 0.1
    operand = np.where(
        shared, nodes - 1 - random.geometric(0.5, uses) % 4, random.integers(instructions, nodes, uses)
    )
    used = np.stack([operand % nodes, random.integers(0, instructions, uses)])
    calls = max(1, nodes // 8)
    called = np.stack([random.integers(0, instructions, calls), np.zeros(calls, np.int64)])
    edges = np.concatenate([chain, defined, used, called], axis=1).astype(np.int32)
    flow = np.repeat([0, 1, 1, 2], [chain.shape[1], len(others), uses, calls]).astype(np.uint8)
    position = np.zeros(edges.shape[1], np.int32)
    position[flow == 1] = np.minimum(random.geometric(0.75, int((flow == 1).sum())) - 1, 30)
    return Graph(random.integers(0, 2231, nodes).astype(np.int32), edges, flow, position)


def make_batch(graphs: int, seed: int = 0) -> Batch:
    """A labelled batch of such graphs, sizes as uneven as those of programs."""
    random = np.random.default_rng(seed)
    sizes = np.clip(random.lognormal(6.0, 0.85, graphs), 20, 8_000)
    sizes = np.maximum(20, sizes * 581 / sizes.mean()).astype(int)
    made = [program_like(seed * 100_000 + i, int(n)) for i, n in enumerate(sizes)]
    labels = [random.integers(0, 2, len(graph.node_text_id)) for graph in made]
    return pack(made).batch(np.arange(graphs), random.integers(0, sizes), labels)


def peer_scores(network: NodeNetwork, peer: nn.Module, inputs: NodeInputs) -> Tensor:
    """What the network says with its message passing done by a peer."""
    initial = network.embedding(inputs.text, inputs.selected)
    scores: Tensor = network.readout(initial, peer(initial, network.steps))
    return scores


def compare(network: NodeNetwork, peer: nn.Module, inputs: NodeInputs) -> dict[str, float]:
    """The largest difference of scores, and of gradients over the largest gradient of each weight."""
    assert inputs.labels is not None
    ours, theirs = network(inputs), peer_scores(network, peer, inputs)
    pairs = []
    for scores in (ours, theirs):
        loss = F.cross_entropy(scores, inputs.labels)
        pairs.append(torch.autograd.grad(loss, list(network.parameters())))
    gradients = [
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-8)) for a, b in zip(*pairs, strict=True)
    ]
    return {"scores": float((ours - theirs).detach().abs().max()), "gradients": max(gradients)}


def clock(action: Callable[[], object], device: torch.device, *, seconds: float) -> float:
    """Milliseconds of one call: the median of as many as fit into `seconds`, at least 5."""
    for _ in range(3):
        action()
    _wait(device)
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - began < seconds and len(times) < 200):
        if device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            action()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start_s = time.perf_counter()
            action()
            times.append(1e3 * (time.perf_counter() - start_s))
    return statistics.median(times)


def passes(
    network: NodeNetwork,
    scores_of: Callable[[], Tensor],
    labels: Tensor,
    device: torch.device,
    seconds: float,
) -> dict[str, float]:
    """Milliseconds of the forward pass alone, forward and backward, and a whole training step."""
    optimiser = torch.optim.Adam(network.parameters(), 1e-9, fused=device.type == "cuda")

    def forward() -> None:
        with torch.no_grad():
            scores_of()

    def backward() -> None:
        network.zero_grad(set_to_none=True)
        F.cross_entropy(scores_of(), labels).backward()

    def step() -> None:
        backward()
        optimiser.step()

    return {
        name: clock(action, device, seconds=seconds)
        for name, action in (("forward", forward), ("forward_backward", backward), ("training_step", step))
    }


def buffered(network: NodeNetwork, batch: Batch, device: torch.device, seconds: float) -> dict[str, float]:
    """What the trainer and `predict` do on a GPU: copy a batch into buffers, replay the CUDA graph."""
    optimiser = torch.optim.Adam(network.parameters(), 1e-9, fused=True, capturable=True)

    def step(inputs: NodeInputs) -> None:
        assert inputs.labels is not None
        network.zero_grad(set_to_none=True)
        F.cross_entropy(network(inputs), inputs.labels.long()).backward()
        optimiser.step()

    result = {}
    for name, work, gradients in (("forward", network, False), ("training_step", step, True)):
        arrays = node_arrays(batch, gradients=gradients)
        pool, recorder = BufferPool(batch.kinds, device), GraphRecorder()

        def act(arrays=arrays, pool=pool, recorder=recorder, work=work) -> Any:
            number, buffers = pool.fill(arrays)
            return recorder(number, lambda: work(buffered_node_inputs(buffers, batch.kinds)))

        with torch.set_grad_enabled(gradients):
            for _ in range(3):
                scores = act()
            if name == "forward":
                plain = network(node_inputs(batch, device, gradients=False))
                assert torch.allclose(scores[: batch.nodes], plain, atol=TOLERANCE)
            result[name] = clock(act, device, seconds=seconds)
    return result


def floor(batch: Batch, hidden: int, steps: int, device: torch.device) -> dict[str, float]:
    """FLOPs and bytes of the shipped forward pass, ceilings measured here, and the time that they allow."""
    nodes, edges, lines = batch.nodes, len(batch.incoming.index), batch.kinds + 3
    flops = 2.0 * steps * nodes * hidden * hidden * (lines + 3)
    moved = 4.0 * steps * (nodes * hidden * (2 * lines + 2 * 3 + 5) + edges * (hidden + 3))
    size = 4096 if device.type == "cuda" else 1024
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    product = clock(lambda: a @ b, device, seconds=1.0)
    large = torch.empty((1 << 28) if device.type == "cuda" else (1 << 24), device=device)
    copied = torch.empty_like(large)
    copy = clock(lambda: copied.copy_(large), device, seconds=1.0)
    flop_rate, byte_rate = 2.0 * size**3 / product * 1e3, 2.0 * large.numel() * 4 / copy * 1e3
    return {
        "flops": flops, "bytes": moved, "flops_per_second": flop_rate, "bytes_per_second": byte_rate,
        "milliseconds": 1e3 * max(flops / flop_rate, moved / byte_rate),
    }  # fmt: skip


def measure(
    device: torch.device, graphs: int, steps: int, seconds: float, peers: list[str]
) -> dict[str, Any]:
    """Check every peer against ours, then time all."""
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    batch = make_batch(graphs)
    network = NodeNetwork(2231, 2, ProgramlSettings(steps=steps)).to(device)
    inputs = node_inputs(batch, device, gradients=True)
    labels = inputs.labels
    assert labels is not None
    fused = not isinstance(operations_for(device), TorchOperations)
    result: dict[str, Any] = {
        "machine": platform.machine() if device.type == "cpu" else torch.cuda.get_device_name(device),
        "torch": torch.__version__, "threads": torch.get_num_threads(), "triton_kernels": fused,
        "graphs": graphs, "nodes": batch.nodes, "edges": len(batch.incoming.index), "steps": steps,
    }  # fmt: skip
    _say(f"{result['machine']}: {batch.nodes:,} nodes, {result['edges']:,} edges, Triton kernels: {fused}")
    rows: dict[str, Any] = {}
    for name in peers:
        peer = PEERS[name](network.messages, batch, device)
        difference = compare(network, peer, inputs)
        _say(
            f"{name} differs by {difference['scores']:.1e} in scores, {difference['gradients']:.1e} in slopes"
        )
        rows[name] = {
            **passes(network, lambda peer=peer: peer_scores(network, peer, inputs), labels, device, seconds),
            "difference": difference,
        }  # fmt: skip
        _say(_row(name, rows[name]))
    rows["launched"] = passes(network, lambda: network(inputs), labels, device, seconds)
    _say(_row("launched", rows["launched"]))
    # A GPU's trainer and predictor replay; on a CPU there is nothing to launch.
    on_gpu = device.type == "cuda"
    rows["shipped"] = buffered(network, batch, device, seconds) if on_gpu else rows["launched"]
    _say(_row("shipped", rows["shipped"]))
    result["milliseconds"] = rows
    result["floor"] = floor(batch, network.messages.hidden, steps, device)
    result["operations"] = operations(network.messages, inputs, device)
    for name, spent in result["operations"].items():
        _say(f"  {name:16} {spent:.4f} ms")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        rows["launched_tf32"] = passes(network, lambda: network(inputs), labels, device, seconds)
        _say(_row("launched_tf32", rows["launched_tf32"]))
        result["training_nodes_per_second"] = {
            size: throughput(network, size, device, seconds) for size in (32, 100, 200, 400)
        }
        torch.set_float32_matmul_precision("highest")
    result["forward_over_floor"] = rows["shipped"]["forward"] / result["floor"]["milliseconds"]
    result["ratios"] = {
        name: {key: rows[name][key] / rows["shipped"][key] for key in rows["shipped"]} for name in peers
    }
    for name, ratios in result["ratios"].items():
        _say(f"shipped against {name}: " + "  ".join(f"{key} {value:.2f}x" for key, value in ratios.items()))
    result["training_memory_bytes"] = training_memory(device)
    result["equal"] = all(rows[name]["difference"]["scores"] < TOLERANCE for name in peers)
    return result


def operations(layer: GatedMessages, inputs: NodeInputs, device: torch.device) -> dict[str, float]:
    """Milliseconds of each operation of one step, forward and backward."""
    edges, chosen = inputs.edges, operations_for(device)
    nodes, hidden = edges.nodes, layer.hidden + (-layer.hidden % 4 if device.type == "cuda" else 0)
    lines = layer.kinds + 3
    made = {
        name: torch.randn(shape, device=device)
        for name, shape in (
            ("w1", (lines * hidden, hidden)), ("b1", (lines * hidden,)), ("w2", (3 * hidden, hidden)),
            ("b2", (3 * hidden,)), ("gates", (4096, hidden)), ("state", (nodes, hidden)),
            ("mean", (nodes, hidden)), ("out", (nodes, hidden)), ("inputs", (nodes, 3 * hidden)),
            ("projected", (nodes, lines * hidden)), ("d_gates", (4096, hidden)),
        )
    }  # fmt: skip
    w1, b1, w2, b2, gates, state, mean, out, gru, projected, d_gates = made.values()
    table = projected.view(-1, hidden)
    actions: dict[str, Callable[[], object]] = {
        "project": lambda: torch.addmm(b1, state, w1.t(), out=projected),
        "gather": lambda: chosen.gather(table, gates, edges.incoming, mean),
        "input product": lambda: torch.addmm(b2, mean, w2.t(), out=gru),
        "update": lambda: chosen.update(gru, projected, state, out),
        "update gradient": lambda: chosen.update_gradient(out, state, gru, projected),
        "input gradient": lambda: torch.mm(gru, w2, out=mean),
        "message gradient": lambda: chosen.message_gradient(table, mean, gates, edges, d_gates),
        "state gradient": lambda: torch.mm(projected, w1, out=state),
    }
    return {name: clock(action, device, seconds=0.2) for name, action in actions.items()}


def throughput(network: NodeNetwork, graphs: int, device: torch.device, seconds: float) -> dict[str, float]:
    """Nodes and milliseconds of a training step on a larger batch, and nodes per second."""
    batch = make_batch(graphs, seed=1)
    inputs = node_inputs(batch, device, gradients=True)
    assert inputs.labels is not None
    spent = passes(network, lambda: network(inputs), inputs.labels, device, seconds)["training_step"]
    _say(f"{batch.nodes:,} nodes: {spent:.2f} ms a training step, {batch.nodes / spent * 1e3:,.0f} nodes/s")
    return {"nodes": batch.nodes, "milliseconds": spent, "nodes_per_second": batch.nodes / spent * 1e3}


def train_and_weigh(device: str, graphs: int) -> dict[str, int]:
    """Train some steps on so many graphs in batches of 10,000 nodes: the most bytes that the process held."""
    random = np.random.default_rng(0)
    made = [
        program_like(number, int(nodes)) for number, nodes in enumerate(random.integers(20, 1142, graphs))
    ]
    sizes = np.array([len(graph.node_text_id) for graph in made])
    labels = random.integers(0, 2, sizes.sum()).astype(np.uint8)
    examples = Examples(pack(made), np.arange(graphs), random.integers(0, sizes), np.full(graphs, 30), labels)
    model = Programl.create(
        tasks.load("reachability"), [str(text) for text in range(2230)], {}, device=device,
        optimisation=Optimisation(max_steps=3, validate_every=3),
    )  # fmt: skip
    few = examples.batch(np.arange(2))
    assert few.labels is not None
    asked = Examples(pack(made[:2]), np.arange(2), examples.root[:2], examples.steps[:2], few.labels)
    model.fit(Batches(examples, 10_000), Batches(asked, 10_000), Silence())
    held = {"nodes": int(sizes.sum()), "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if device != "cpu":
        held["device"] = torch.cuda.max_memory_allocated()
    return held


def training_memory(device: torch.device, graphs: int = 3_000) -> dict[str, int]:
    """The same, measured in a process of its own."""
    words = ["--device", device.type, "--graphs", str(graphs), "--memory"]
    done = subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True)
    held: dict[str, int] = json.loads(done.stdout)
    _say(
        f"a training run over {held['nodes']:,} nodes held at most {held['host'] / 2**30:.2f} GiB"
        + (f", and {held['device'] / 2**30:.2f} GiB of the GPU's" if "device" in held else "")
    )
    return held


def _edge_list(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Source, target, kind and position of every edge, both ways, in an order that no one sorted for them."""
    slot = torch.from_numpy(batch.incoming.index).long()
    target = torch.from_numpy(batch.incoming.row).long()
    position = torch.from_numpy(batch.incoming.position).long()
    order = torch.randperm(len(slot), generator=torch.Generator().manual_seed(0))
    columns = (slot // batch.kinds, target, slot % batch.kinds, position)
    return tuple(column[order].to(device) for column in columns)  # type: ignore[return-value]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _row(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{name:12} {row['error']}"
    return f"{name:12} " + "  ".join(f"{key} {row[key]:.3f} ms" for key in row if key != "difference")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graphs", type=int, help="32 on a GPU, 4 on a CPU, unless said")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seconds", type=float, help="time for each measurement: 3 on a GPU, 0.5 on a CPU")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--memory", action="store_true", help="only train on --graphs, and print the bytes held"
    )
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(train_and_weigh(arguments.device, arguments.graphs)))
        return
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # threads that wait for each other on a busy machine would be what is timed
    # A CPU is some hundred times slower; the ratios are much the same on fewer graphs.
    usual_graphs, usual_seconds = (32, 3.0) if device.type == "cuda" else (4, 0.5)
    graphs, seconds = arguments.graphs or usual_graphs, arguments.seconds or usual_seconds
    result = measure(device, graphs, arguments.steps, seconds, arguments.peers)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1))
    if not result["equal"]:
        sys.exit("The peers do not agree: see 'difference'")


if __name__ == "__main__":
    main()
